"""Releases by path: files, folders, runs, names in runs; several or none are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedsynth.api.locate import find_release
from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.storage.releases import ReleaseStore
from fedsynth.storage.run_directory import CONFIG

SET = SyntheticSet(torch.zeros(1, 1, 2, 2), torch.zeros(1, dtype=torch.int64))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a job of three stages."""
    (tmp_path / CONFIG).write_text("method: [psg]\n")
    for stage in (1, 2, 10):
        ReleaseStore(tmp_path).save("psg-eps1-seed0", stage, SET)
    return tmp_path


@pytest.mark.parametrize(
    ("place", "stage"),
    [
        ("", 10),
        ("psg", 10),
        ("psg-eps1-seed0/stage-2", 2),
        ("releases/psg-eps1-seed0", 10),
        ("releases/psg-eps1-seed0/stage-1.npz", 1),
    ],
)
def test_a_release_is_found(run: Path, place: str, stage: int) -> None:
    assert find_release(run / place).name == f"psg-eps1-seed0/stage-{stage}"


def test_several_jobs_need_a_name(run: Path) -> None:
    ReleaseStore(run).save("dm-eps1-seed0", 1, SET)
    with pytest.raises(UserError, match=r"releases of 2 jobs.*Name one.*psg-eps1-seed0"):
        find_release(run)
    with pytest.raises(UserError, match=r"there is no release 'psgg'. Did you mean 'psg'"):
        find_release(run / "psgg")


def test_a_typo_has_its_nearest_name(run: Path) -> None:
    with pytest.raises(UserError, match=f"Did you mean '{run.name}'"):
        find_release(run.with_name(run.name + "x"))
    with pytest.raises(UserError, match="does not exist"):
        find_release(run.parent / "no" / "no")
