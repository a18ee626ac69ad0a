"""A run directory belongs to one process at a time, and to nobody once that process is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fedsynth.cli.launch import resume
from fedsynth.core.errors import UserError
from fedsynth.storage.lock import HOLDER, in_use

_HOLD = """
import subprocess, sys
from pathlib import Path
from fedsynth.storage.lock import in_use
with in_use(Path(sys.argv[1])):
    child = subprocess.Popen(["sleep", "60"]) if sys.argv[2:] else None
    print("held", child.pid if child else "", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the directory, with a process that it started."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path), "with a child"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline().split()
    assert line[0] == "held"
    yield process
    os.kill(int(line[1]), signal.SIGKILL)
    process.kill()
    process.communicate()


def test_the_holder_is_named_and_nothing_is_touched(holder, tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"method": ["psg"]}))
    leftover = tmp_path / ".metrics.csv.1-1.part"  # what the other process is writing just now
    leftover.touch()
    with pytest.raises(UserError, match=rf"is in use by process {holder.pid} on .* since 20"):
        resume(tmp_path, {}, quiet=True)
    assert leftover.exists()
    assert json.loads((tmp_path / HOLDER).read_text())["pid"] == holder.pid


def test_a_killed_holder_holds_nothing_even_if_its_children_live(holder, tmp_path):
    holder.kill()
    holder.wait()
    assert (tmp_path / HOLDER).exists()
    with in_use(tmp_path):
        assert json.loads((tmp_path / HOLDER).read_text())["pid"] == os.getpid()
        with pytest.raises(UserError, match=f"process {os.getpid()} "), in_use(tmp_path):
            pass
    assert not (tmp_path / HOLDER).exists()


def test_an_error_inside_sets_it_free(tmp_path):
    with pytest.raises(ZeroDivisionError), in_use(tmp_path):
        _ = 1 / 0
    with in_use(tmp_path):
        pass


def test_a_place_that_cannot_be_written_is_one_message(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match=r"cannot write .*where a directory should be"),
        in_use(tmp_path / "file"),
    ):
        pass
