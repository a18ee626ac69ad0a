"""The guide to certificates: its commands run, print what it says, and its program holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import ROOT

from fedsynth.privacy.certificate import check

GUIDE = (ROOT / "docs/guides/certificates.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    """The fenced blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


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


@pytest.mark.timeout(300)
def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    commands = [line.split() for block in blocks("bash") for line in block.splitlines()]
    assert len(commands) == 4
    assert all(command[0] == "fedsynth" for command in commands)
    run, release, folder, whole = ([*("-m", "fedsynth"), *words[1:]] for words in commands)
    execute(run, tmp_path)
    shown = execute(release, tmp_path)
    (promised,) = blocks("text")
    for line in promised.splitlines():
        assert line in shown
    keys = [
        f"{signer.key} {signer.name}\n"
        for path in sorted(tmp_path.rglob("*.privacy.json"))
        for signer in check(path).signers
    ]
    (tmp_path / "keys.txt").write_text("".join(keys))
    assert "not established" not in execute(folder, tmp_path)
    assert "every epsilon of metrics.csv holds" in execute(whole, tmp_path)
    (program,) = blocks("python")
    execute(["-c", program], tmp_path)
