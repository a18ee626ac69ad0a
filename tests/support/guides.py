"""Programs and commands of the guides, run as a reader runs them, but in this process."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from cached import cleared

from fedsynth.cli.main import app
from fedsynth.experiment import scenario

ROOT = Path(__file__).parents[2]


def blocks(page: str, kind: str) -> list[str]:
    """The fenced blocks of one kind in a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def execute(program: str, folder: Path) -> str:
    """Run a Python program in a folder and return what it prints."""
    with _reader(folder) as printed:
        exec(compile(program, "guide", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


def commands(block: str, folder: Path) -> str:
    """Run the lines `fedsynth WORDS` of a block and return what they print."""
    with _reader(folder) as printed:
        for line in block.splitlines():
            name, *words = shlex.split(line)
            assert name == "fedsynth"
            app.main(words, prog_name="fedsynth", standalone_mode=False)
    return printed.getvalue()


@contextlib.contextmanager
def _reader(folder: Path) -> Iterator[io.StringIO]:
    """A folder to work in, and what is printed; a command that fails raises SystemExit.

    Data sets are known by names such as `file:visits.csv`, which another folder may have too."""
    printed = io.StringIO()
    with (
        cleared(scenario, "scenario_stages", "party_records", "_read", "_assigned"),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        mock.patch.object(os, "_exit", side_effect=SystemExit),
    ):
        yield printed
