"""Detection of a disk that nodes share, by a file that only one of them can have made."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedsynth.core.errors import UserError
from fedsynth.storage.disk_identity import IDENTITY, DiskProbe, disk_identity, disk_probe


def on_another_disk(probe: DiskProbe, folder: Path) -> DiskProbe:
    """The probe as a node meets it that has another disk under the same path."""
    return dataclasses.replace(probe, folder=str(folder))


def test_a_process_with_the_same_disk_has_its_identity(tmp_path: Path) -> None:
    with disk_probe(tmp_path / "parties") as probe:
        assert probe.find() == probe.identity == disk_identity(tmp_path / "parties")
    assert [path.name for path in (tmp_path / "parties").glob(".*") if "lock" not in path.name] == [
        IDENTITY
    ]


def test_another_disk_has_an_identity_of_its_own_that_stays(tmp_path: Path) -> None:
    with disk_probe(tmp_path / "here") as probe:
        there = on_another_disk(probe, tmp_path / "there" / "parties")
        found = there.find()
        assert found != probe.identity
        assert there.find() == found
    with disk_probe(tmp_path / "here") as again:
        assert again.identity == probe.identity
        assert again.token != probe.token


def test_a_copy_of_the_folder_is_refused(tmp_path: Path) -> None:
    """It has the identity of the original, and yet its ledgers are others."""
    disk_identity(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    with disk_probe(tmp_path / "here") as probe, pytest.raises(UserError, match="is here a copy"):
        on_another_disk(probe, tmp_path / "there").find()


def test_what_a_killed_driver_left_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / ".probe-0123").touch()
    with disk_probe(tmp_path) as probe:
        assert [path.name for path in tmp_path.glob(".probe-*")] == [probe.token]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*file"):
        disk_identity(tmp_path / "file" / "parties")


def test_processes_that_race_agree(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from fedsynth.storage.disk_identity import disk_identity; "
        "sys.stdin.read(1); print(disk_identity(pathlib.Path(sys.argv[1])))"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "parties")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    found = {racer.communicate("x", timeout=100)[0] for racer in racers}
    assert len(found) == 1
    assert len(found.pop().strip()) == 32
