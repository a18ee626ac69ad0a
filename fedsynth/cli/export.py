"""Write a release into a folder for other programs: `fedsynth export RELEASE --as FORM`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fedsynth.api.export.forms import FORMS
from fedsynth.api.locate import find_release
from fedsynth.core.arguments import ArgumentParser
from fedsynth.core.errors import exit_code


def parser() -> ArgumentParser:
    """The options of the command."""
    made = ArgumentParser(prog="fedsynth export")
    made.add_argument(
        "release", type=Path, help="a released file, a folder of one, a run, or RUN/NAME"
    )
    made.add_argument("--as", dest="form", choices=tuple(FORMS), required=True, help="the form")
    made.add_argument("--out", type=Path, required=True, help="the new folder")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Export what is named; exit code 2 after an error of the user."""
    options = parser().parse_args(words)
    return exit_code(lambda: _export(options))


def _export(options: argparse.Namespace) -> None:
    release = find_release(options.release)
    place = release.export(options.out, form=options.form)
    print(f"{release.name} as {options.form}: {place}")
    print(f"check it: fedsynth verify {place}")
