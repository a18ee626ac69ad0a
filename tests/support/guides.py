"""Programs of the guides, run as a reader runs them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page: str, kind: str) -> list[str]:
    """The fenced blocks of one kind in a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def execute(arguments: list[str], folder: Path) -> str:
    """Run Python in a folder and return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(block: str, folder: Path) -> str:
    """Run the lines `fedsynth WORDS` of a block in one process and return what they print."""
    lines = [shlex.split(line)[1:] for line in block.splitlines()]
    assert all(line.startswith("fedsynth ") for line in block.splitlines())
    program = "import sys\nfrom fedsynth.cli.main import app\n"
    for words in lines:
        program += f"app.main({words!r}, prog_name='fedsynth', standalone_mode=False)\n"
    return execute(["-c", program], folder)
