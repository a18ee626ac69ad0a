"""The command `python -m fedsynth.study [data=NAME,NAME ...] [key=value ...]`: one scenario on
several data sets, and one table of all of them with the spread over draws and over students.

Every data set is a run of its own (`python -m fedsynth.run`, in a process of its own) below the
study's folder; what a run is, how it is planned and how it survives a crash is the run's business.
Called again with the same `out`, the study goes on where it was: finished runs are read,
interrupted ones resumed.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pandas as pd
import yaml

from fedsynth.api.launch import RESUMABLE
from fedsynth.cli.run import print_plan
from fedsynth.core.enums import Preset
from fedsynth.core.errors import UserError, unknown
from fedsynth.core.text import epsilon_text, markdown_table
from fedsynth.experiment.config import ExperimentConfig, parse_overrides, resolve
from fedsynth.experiment.evaluation_data import evaluation_data
from fedsynth.report.figures import accuracy_over_budgets, render
from fedsynth.report.summary import frame
from fedsynth.storage.files import atomic_write, disk_errors, make_directories
from fedsynth.storage.run_directory import CONFIG, RunDirectory

SCENARIO, DATA = "sketch_study", "mnist,fashion_mnist"
FLAGS = ("--plan", "--quiet", "--help")
TABLE, NUMBERS, FIGURE = "README.md", "table.csv", "accuracy.png"
USAGE = f"""\
Usage: python -m fedsynth.study [data={DATA}] [preset=laptop] [out=FOLDER] [key=value ...]

Runs scenario={SCENARIO} (or the one given) once for every data set, below `out` (usually
runs/SCENARIO-PRESET; a study with other settings needs another), and writes one table there: mean
over the draws (`seed`) of the mean over the students (`evaluation.nets`), with both deviations; of
several budgets, a figure too. The same command goes on after an interruption.
--plan prints what every run would do and cost, and stops.
Other keys: those of `python -m fedsynth.run --help`."""

Runner = Callable[[Sequence[str]], int]
"""Takes the words after `python -m fedsynth.run`, returns the exit code."""


@dataclass(frozen=True)
class Study:
    """A study: data sets, a folder, and the arguments of every run."""

    data: tuple[str, ...]
    folder: Path
    words: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @staticmethod
    def parse(arguments: Sequence[str]) -> Study:
        """Sort a command line; everything is checked before anything is run."""
        own = {"data": DATA, "out": "", "scenario": SCENARIO, "preset": "laptop"}
        words, flags = [], []
        for word in arguments:
            key, _, value = word.partition("=")
            if word.startswith("-"):
                flags.append(word)
            elif key in own:
                own[key] = _given(key, value)
            else:
                words.append(word)
        if strange := [flag for flag in flags if flag not in FLAGS]:
            raise unknown("option", strange[0], FLAGS)
        if own["preset"] not in tuple(Preset):
            raise unknown("preset", own["preset"], Preset)
        words = [f"scenario={own['scenario']}", f"preset={own['preset']}", *words]
        names = tuple(dict.fromkeys(_given("data", name) for name in own["data"].split(",")))
        stem = f"{Path(own['scenario']).stem}-{own['preset']}"
        study = Study(names, Path(own["out"] or f"runs/{stem}"), tuple(words), tuple(flags))
        for name in names:
            study.config(name)
        return study

    def config(self, name: str) -> ExperimentConfig:
        """The configuration of the run on one data set."""
        return resolve(parse_overrides([*self.words, f"data={name}"]))

    def run(self, runner: Runner) -> int:
        """Every data set in turn, then the table. The exit code of the first run that fails."""
        for name in self.data:
            directory = self.folder / name
            if self._begun(directory, name) and RunDirectory(directory).finished:
                continue
            anew = [*self.words, f"data={name}", f"out={directory}"]
            more = [word for word in self.words if word.partition("=")[0] in RESUMABLE]
            resumed = ["--resume", str(directory), *more]
            words = resumed if (directory / CONFIG).is_file() else anew
            if code := runner([*words, *self.flags]):
                return code
        rows = table(
            {name: frame(RunDirectory(self.folder / name).metrics()) for name in self.data}
        )
        tested = evaluation_data(self.config(self.data[0]).as_dict())
        with disk_errors(self.folder):
            make_directories(self.folder)
            atomic_write(self.folder / NUMBERS, rows.to_csv(index=False).encode())
            page, link = self.page(rows), ""
            if figure := accuracy_over_budgets(rows, accuracy=tested.accuracy):
                atomic_write(self.folder / FIGURE, render(figure, "png"))
                link = f"\n![accuracy over budgets]({FIGURE})\n"
            atomic_write(self.folder / TABLE, (page + link).encode())
        print(page)
        return 0

    def _begun(self, directory: Path, name: str) -> bool:
        """True if this run has been started. A run with other settings is an error."""
        if not (directory / CONFIG).is_file():
            return False
        now = yaml.safe_load(yaml.safe_dump(self.config(name).as_dict()))  # as the file has it
        then = RunDirectory(directory).read_config()
        other = [k for k in now if k not in (*RESUMABLE, "out") and now[k] != then.get(k, now[k])]
        if other:
            raise UserError(
                f"out={self.folder} holds a study with other settings ({', '.join(other)}): give "
                "its words again, or another out=."
            )
        return True

    def page(self, rows: pd.DataFrame) -> str:
        """The table for readers, with the command that makes it."""
        words = [f"data={','.join(self.data)}", *self.words, f"out={self.folder}"]
        return f"`python -m fedsynth.study {shlex.join(words)}`\n\n{markdown(rows)}\n"


def table(metrics: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row a data set, method, epsilon and kind of judge, after the last stage.

    `accuracy` is the mean over draws of the mean over students, `over_draws` its deviation over
    draws (n - 1), `over_students` the deviation within a draw, on average. A deviation of one value
    is no number."""
    rows = []
    for data, found in metrics.items():
        last = found[found["stage"] == found["stage"].max()]
        for (name, epsilon), group in last.groupby(["method", "epsilon"], sort=True):
            values = group[group["metric"] == "accuracy"]["value"]
            within = group[group["metric"] == "accuracy_std"]["value"]
            rows.append(
                {
                    "data": data,
                    "method": name,
                    "epsilon": epsilon,
                    "draws": len(values),
                    "accuracy": values.mean(),
                    "over_draws": values.std(ddof=1),
                    "over_students": within.mean(),
                    "least": values.min(),
                    "most": values.max(),
                    "images": group[group["metric"] == "images"]["value"].mean(),
                    "epsilon_pld": group[group["metric"] == "epsilon_pld"]["value"].max(),
                }
            )
    return pd.DataFrame(rows)


def markdown(rows: pd.DataFrame) -> str:
    """The table as Markdown."""
    headings = [
        "data",
        "method",
        "ε",
        "accuracy",
        "over draws",
        "over students",
        "draws",
        "images",
        "ε PLD",
    ]
    lines = [
        [
            row.data,
            f"`{row.method}`",
            epsilon_text(row.epsilon),
            f"{row.accuracy:.4f}",
            *(f"{v:.4f}" if pd.notna(v) else "–" for v in (row.over_draws, row.over_students)),
            str(row.draws),
            f"{row.images:.0f}",
            epsilon_text(row.epsilon_pld),
        ]
        for row in rows.itertuples()
    ]
    return markdown_table(headings, lines)


def _given(key: str, value: str) -> str:
    if not value:
        raise UserError(f"{key}= is empty: give a value, or leave the key out.")
    return value


def in_a_process(words: Sequence[str], module: str = "fedsynth.run") -> int:
    """One command in a process of its own: its engine ends with it, and it ends with this one.

    Raises:
        KeyboardInterrupt: This process was asked to end; nothing else is to be started.
    """
    process = subprocess.Popen([sys.executable, "-m", module, *words])
    asked: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        process.send_signal(number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        code = process.wait()
        if asked:
            raise KeyboardInterrupt
        return code
    except KeyboardInterrupt:  # the run receives the signal as well and shuts down
        process.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def exit_code_of(
    words: Sequence[str] | None, usage: str, command: Callable[[list[str]], int]
) -> int:
    """Run a command of several runs that continues where it was interrupted.

    Args:
        words: Its words; None: those of this process.
        usage: The text that `--help` prints.
        command: Takes the words and returns the exit code.

    Returns:
        The command's exit code; 2 after an error of the user, 130 after an interruption.
    """
    words = list(sys.argv[1:] if words is None else words)
    if {"-h", "--help"} & set(words):
        print(usage)
        return 0
    try:
        return command(words)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command continues.", file=sys.stderr)
        return 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit codes as those of `fedsynth.run`."""
    return exit_code_of(arguments, USAGE, _study)


def _study(words: list[str]) -> int:
    study = Study.parse(words)
    if "--plan" in study.flags:
        for name in study.data:
            print_plan(study.config(name))
        return 0
    return study.run(in_a_process)


if __name__ == "__main__":
    sys.exit(main())
