"""Write the report of a run, or an index over runs: `fedsynth report RUN --format FORMAT`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fedsynth.api.report import FORMATS, write_report_as
from fedsynth.core.arguments import ArgumentParser
from fedsynth.core.errors import exit_code


def parser() -> ArgumentParser:
    """The options of the command."""
    made = ArgumentParser(prog="fedsynth report")
    made.add_argument("run", type=Path, help="a run directory, or a folder of runs")
    made.add_argument("--format", dest="form", choices=tuple(FORMATS), default="html")
    made.add_argument("--out", type=Path, help="the folder of what is written")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Write what is named; exit code 2 after an error of the user."""
    options = parser().parse_args(words)
    return exit_code(lambda: _report(options))


def _report(options: argparse.Namespace) -> None:
    print(write_report_as(options.run, options.form, options.out))
