"""The study: which runs it starts, that it goes on, and that its table says what the runs say."""

from __future__ import annotations

import math
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import psutil
import pytest

from fedsynth.cli.study import FIGURE, NUMBERS, TABLE, Study, main, table
from fedsynth.core.errors import UserError
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.methods.sketch_teach.config import SketchTeachConfig
from fedsynth.storage.metrics import COLUMNS, Metric
from fedsynth.storage.run_directory import CONFIG, METRICS, REPORT, RunDirectory

STUDENTS = {0: (0.8, 0.9), 1: (0.6, 0.7)}  # accuracies by draw


def measured(seed: int, epsilon: float = 1.0) -> list[Metric]:
    """The metrics of a run of one seed with two classifiers, in two stages."""
    values = STUDENTS[seed]
    deviation = abs(values[0] - values[1]) / math.sqrt(2)
    found = {"accuracy": sum(values) / 2, "accuracy_std": deviation, "images": 500.0}
    found["epsilon_pld"] = 0.999
    first = [Metric("sketch_teach", epsilon, seed, 1, "accuracy", 0.1)]
    return first + [Metric("sketch_teach", epsilon, seed, 2, k, v) for k, v in found.items()]


class Runs:
    """In place of the run command: writes what a run leaves, and can be interrupted."""

    def __init__(self, failing: int = -1, budgets: Sequence[float] = (1.0,)) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._failing, self._budgets = failing, budgets

    def __call__(self, words: Sequence[str]) -> int:
        self.calls.append(tuple(words))
        values = dict(word.split("=", 1) for word in words if "=" in word)
        if words[0] == "--resume":
            place = Path(words[1])
        else:
            place = Path(values["out"])
            config = resolve(parse_overrides([word for word in words if "=" in word]))
            RunDirectory.create(place).write_config(config.as_dict())
        if len(self.calls) == self._failing:
            return 130
        rows = [row for seed in STUDENTS for e in self._budgets for row in measured(seed, e)]
        text = "\n".join(
            ",".join("" if v is None else str(v) for v in row) for row in [COLUMNS, *rows]
        )
        (place / METRICS).write_text(text + "\n")
        (place / REPORT).write_text("done")
        return 0


def study(folder: Path, *words: str) -> Study:
    return Study.parse(["data=mnist,fashion_mnist", f"out={folder}", "preset=smoke", *words])


def test_each_data_set_is_a_run_and_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    runs = Runs(failing=2)
    assert study(tmp_path).run(runs) == 130
    assert not (tmp_path / TABLE).exists()
    assert study(tmp_path).run(runs) == 0
    started, broken, resumed = runs.calls
    assert "data=mnist" in started
    assert {"scenario=sketch_study", "preset=smoke", "data=fashion_mnist"} <= set(broken)
    assert resumed == ("--resume", str(tmp_path / "fashion_mnist"))
    assert study(tmp_path).run(runs) == 0
    assert len(runs.calls) == 3
    written = pd.read_csv(tmp_path / NUMBERS)
    assert written["data"].tolist() == ["mnist", "fashion_mnist"]
    assert "| mnist | `sketch_teach` | 1 | 0.7500 | 0.1414 | 0.0707 | 2 | 500 |" in (
        tmp_path / TABLE
    ).read_text(encoding="utf-8")


def test_the_spread_over_draws_is_that_of_their_means() -> None:
    rows = [row for seed in STUDENTS for row in measured(seed)]
    (row,) = table({"mnist": pd.DataFrame(rows, columns=list(COLUMNS))}).itertuples()
    means = [0.85, 0.65]
    assert row.accuracy == pytest.approx(0.75)
    assert row.over_draws == pytest.approx(pd.Series(means).std(ddof=1))
    assert row.over_students == pytest.approx(pd.Series(STUDENTS[0]).std(ddof=1))
    assert (row.draws, row.least, row.most) == (2, pytest.approx(0.65), pytest.approx(0.85))


def test_several_budgets_are_drawn(tmp_path: Path) -> None:
    assert study(tmp_path / "one").run(Runs()) == 0
    assert not (tmp_path / "one" / FIGURE).exists()
    assert study(tmp_path / "two").run(Runs(budgets=(1.0, 10.0))) == 0
    assert (tmp_path / "two" / FIGURE).read_bytes().startswith(b"\x89PNG")
    assert FIGURE in (tmp_path / "two" / TABLE).read_text(encoding="utf-8")


def test_options_of_a_run_are_handed_on(tmp_path: Path) -> None:
    runs = Runs()
    assert study(tmp_path, "--quiet").run(runs) == 0
    assert all(call[-1] == "--quiet" for call in runs.calls)


def test_other_words_do_not_go_on_with_a_study(tmp_path: Path) -> None:
    assert study(tmp_path).run(Runs()) == 0
    (tmp_path / "mnist" / REPORT).unlink()
    runs = Runs()
    study(tmp_path, "workers=1").run(runs)  # changes no result, and is handed on
    assert runs.calls == [("--resume", str(tmp_path / "mnist"), "workers=1")]
    with pytest.raises(UserError, match=r"other settings \(sketch_teach\)"):
        study(tmp_path, "sketch_teach.labels=soft").run(Runs())
    assert (tmp_path / "mnist" / CONFIG).is_file()


def test_mistakes_are_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for word, said in (
        ("data=mnist,fashion", "unknown data set 'fashion'"),
        ("--resume", "unknown option '--resume'"),
        ("data=", "data= is empty"),
        ("data=mnist,", "data= is empty"),
        ("scenario=", "scenario= is empty"),
        ("preset=big", "unknown preset 'big'"),
        ("sketch_teach.label=soft", "Did you mean"),
    ):
        assert main([f"out={tmp_path / 'study'}", word]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "study").exists()
    assert main(["--help"]) == 0


def test_a_plan_of_every_run_is_printed_and_nothing_is_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data=mnist,shapes", "preset=smoke", f"out={tmp_path / 'study'}", "--plan"]
    assert main([*words, "sketch_teach.pool_steps=1", "evaluation.max_images=10"]) == 0
    assert capsys.readouterr().out.count("sketch_study, preset smoke") == 2
    assert not (tmp_path / "study").exists()


def test_the_table_names_a_command_that_can_be_given_again(tmp_path: Path) -> None:
    folder = tmp_path / "my study"
    assert study(folder).run(Runs()) == 0
    command = (folder / TABLE).read_text(encoding="utf-8").split("`")[1]
    assert Study.parse(shlex.split(command)[3:]) == study(folder)


def test_the_paper_preset_is_the_whole_study() -> None:
    config = resolve(parse_overrides(["scenario=sketch_study", "preset=paper"]))
    assert config.run.epsilon == (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    assert (len(config.run.seed), config.evaluation.repetitions) == (5, 3)
    laptop = resolve(parse_overrides(["scenario=sketch_study"]))
    assert (len(laptop.run.seed), laptop.evaluation.repetitions) == (5, 3)
    assert laptop.run.epsilon == (1.0, 10.0)
    whole = config.methods["sketch_teach"]
    assert isinstance(whole, SketchTeachConfig)
    assert laptop.methods["sketch_teach"] == replace(whole, spc=4000)


def test_a_study_that_is_ended_takes_its_run_with_it(tmp_path: Path) -> None:
    stub, told = tmp_path / "run", tmp_path / "pid"
    stub.write_text(f"#!/bin/sh\necho $$ > {told}.new\nmv {told}.new {told}\nexec sleep 100\n")
    stub.chmod(0o755)
    program = (
        f"import sys; from fedsynth.cli.study import exit_code_of, in_a_process as run; "
        f"sys.executable = {str(stub)!r}; sys.exit(exit_code_of([], '', lambda w: run(w) + run(w)))"
    )
    study_of_it = subprocess.Popen([sys.executable, "-c", program])
    try:
        assert soon(told.exists)
        study_of_it.send_signal(signal.SIGTERM)
        assert study_of_it.wait(timeout=60) == 130  # nothing else was started
        assert soon(lambda: not psutil.pid_exists(int(told.read_text())))
    finally:
        study_of_it.kill()


def soon(happened: Callable[[], bool]) -> bool:
    """True if it happens within a minute."""
    until = time.monotonic() + 60
    while not happened() and time.monotonic() < until:
        time.sleep(0.05)
    return happened()
