"""The command `python -m fedsynth.run scenario=NAME [key=value ...]`, installed as `fedsynth`."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from fedsynth.core.errors import JobsFailed, UserError, nearest

if TYPE_CHECKING:
    from fedsynth.experiment.config import ExperimentConfig

HELP = """\
Usage: python -m fedsynth.run scenario=NAME [key=value ...] [options]

If these parties each released something differentially private, what could the receiver learn to do
with it, what would it cost in privacy, and is that cost true? fedsynth simulates it.

  python -m fedsynth.run scenario=split_mnist                   the main comparison, about 5 minutes
  python -m fedsynth.run scenario=split_mnist preset=smoke      the same in less than a minute
  python -m fedsynth.run scenario=split_mnist --plan            what it would cost; reads no data
  python -m fedsynth.run scenario=split_mnist method=psg epsilon=1,10 seed=0,1,2 psg.spc=20

Options
  --plan         print every party's sampling rate, steps, noise, epsilon, bytes and time, and stop
  --resume DIR   go on with an interrupted run; the result is that of an uninterrupted one
  --list         scenarios, methods, data sets and partitioners, with a line each
  --quiet        no progress, only the result
  --help         this text, with every key

Keys (a comma makes a list, a list makes a grid)
"""


@dataclass(frozen=True)
class Command:
    """The words of a command line, sorted."""

    overrides: tuple[str, ...] = ()
    flags: frozenset[str] = field(default_factory=frozenset)
    resume: str | None = None


# Batch systems and terminals that close ask this way.
STOPS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
FLAGS = ("--plan", "--resume", "--list", "--quiet", "--help")
SILENT = {"--list", "--quiet", "--help", "-h"}  # flags with which nothing but the answer is printed


def parse(words: Sequence[str]) -> Command:
    """Sort a command line into overrides and options."""
    overrides, flags, resume = [], set(), None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help"):
            flags.add("--help")
        elif word == "--resume" or word.startswith("--resume="):
            resume = word.partition("=")[2] or (rest.pop(0) if rest else "")
            if not resume or resume.startswith("-"):
                raise UserError("--resume needs the run directory to go on with: --resume DIR.")
        elif word in FLAGS:
            flags.add(word)
        elif word.startswith("-"):
            raise UserError(
                f"unknown option {word!r}.{nearest(word, FLAGS)} Allowed: {', '.join(FLAGS)}."
            )
        else:
            overrides.append(word)
    return Command(tuple(overrides), frozenset(flags), resume)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 0 done, 1 done but for jobs that failed, 2 a mistake to mend, 128 and the
        number of the signal if one ended it (130: Ctrl-C).
    """
    arguments = list(sys.argv[1:] if words is None else words)
    if threading.current_thread() is threading.main_thread():
        for number in STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` asks for
                signal.signal(number, _interrupt)
    tolerate_terminal()
    if sys.stdout.isatty() and not SILENT & set(arguments):
        print("reading the settings ...", flush=True)  # the imports below take seconds
    from fedsynth.engine.process_setup import prepare_worker

    prepare_worker()
    try:
        return _run(parse(arguments), arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, JobsFailed) else 2
    except KeyboardInterrupt as error:
        print("interrupted.", file=sys.stderr)
        return 128 + getattr(error, "number", signal.SIGINT)


def tolerate_terminal() -> None:
    """Print a replacement for what the terminal's encoding lacks, in place of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end; treated as Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Treat a request to end as Ctrl-C: close the engine, keep what is done. Further ones change
    nothing."""
    for each in STOPS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)


def _run(command: Command, arguments: list[str]) -> int:
    if "--help" in command.flags:
        print(help_text())
        return 0
    if "--list" in command.flags:
        from fedsynth.cli.listing import print_catalogue

        return print_catalogue([w for w in command.overrides if w.startswith("plugin=")])
    from fedsynth.experiment.config import parse_overrides, resolve

    overrides = parse_overrides(command.overrides)
    if command.resume is not None:
        from fedsynth.api.launch import load_started_config
        from fedsynth.cli.launch import resume

        if "--plan" in command.flags:
            print_plan(load_started_config(Path(command.resume), overrides))
            return 0
        return resume(Path(command.resume), overrides, "--quiet" in command.flags)
    config = resolve(overrides)
    if "--plan" in command.flags:
        print_plan(config)
        return 0
    from fedsynth.cli.launch import start

    return start(config, arguments, "--quiet" in command.flags)


def print_plan(config: ExperimentConfig) -> None:
    """Print what the run would do and cost. Reads no data."""
    from rich.console import Console

    from fedsynth.cli.plan_table import plan_of_width
    from fedsynth.experiment.affordability import check_affordable
    from fedsynth.experiment.experiment import Experiment
    from fedsynth.experiment.scenario_config import dataset_info
    from fedsynth.experiment.warnings import warnings
    from fedsynth.report.party_split import split_lines
    from fedsynth.report.report_data import exchange_note, parties_of

    experiment = Experiment.of(config)
    jobs = experiment.first_seed_jobs
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else 170)
    seeds = f", times {len(config.run.seed)} seeds" if len(config.run.seed) > 1 else ""
    check_affordable(experiment)
    title = f"{config.run.scenario}, preset {config.run.preset}{seeds}"
    console.print(plan_of_width(jobs, title, console.width))
    console.print(
        f"delta={config.run.delta:g}, unit {jobs[0].budget.unit}, relation "
        f"{jobs[0].budget.relation}; noise calibrated to {config.run.accounting}. "
        "'server' receives all releases, 'public' sees the end result only."
    )
    parties = parties_of(config.scenario)
    if len(parties) > 1:
        console.print("training records of each party by class:")
        for line in split_lines(parties, dataset_info(config.scenario)):
            console.print(f"  {line}", markup=False, highlight=False)
    if note := exchange_note(jobs):
        console.print(f"note: {note}", markup=False)
    for text in experiment.assumptions:
        console.print(f"treated as public: {text}", markup=False)
    for text in warnings(experiment):
        console.print(f"note: {text}", markup=False)


def help_text() -> str:
    """The help with every key, from the settings themselves."""
    from fedsynth.cli.listing import keys

    return HELP + keys()


def entry() -> None:
    """The console command: leave with the exit code of `main`."""
    try:
        code = main()
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:  # the reader has had enough, as in `--list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    # After a failure nothing is waited for: the workers are gone, threads with other jobs may not.
    os._exit(code) if code else sys.exit(0)


if __name__ == "__main__":
    entry()
