"""Sizes of images: plans refuse those that a method's networks cannot handle, before anything is
charged, and every method works on 64x64 RGB, the published form of CelebA and Places."""

from __future__ import annotations

import dataclasses

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import ReleasedModel
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.experiment.method_selection import able
from fedsynth.experiment.scenario_config import ScenarioConfig, dataset_info
from fedsynth.methods.registry import method
from fedsynth.storage.run_directory import RunDirectory

BUDGET = Budget(10.0, 1e-3)
LARGE = ScenarioConfig(
    data="made_colour",
    partition="iid",
    parties=2,
    stages="together",
    holdout=1100,  # 100 records remain
    resize=64,
)
RESNET = {"generator": "resnet"}  # beside the tiny form's dcgan
SMALLER = {"pate_gan": {"teachers": 3, "hidden": 4, "rounds": 1}}


def stage(height: int, width: int) -> Stage:
    info = PartyInfo(0, 400, {0: 200, 1: 200})
    data = DatasetInfo("odd", (1, height, width), 2, (0.5,), (0.25,))
    return Stage(data, 0, 1, (info,), (0, 1), (0, 1))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("dp_merf", (30, 30)),
        ("dp_ntk", (28, 30)),
        ("dp_hp", (30, 30)),
        ("psg_prior", (48, 48)),
        ("gs_wgan", (64, 32)),
        ("ndpdc", (28, 32)),
        ("dm", (6, 6)),
    ],
)
def test_an_impossible_size_is_refused_by_the_plan(name, size):
    method_impl = method(name)
    with pytest.raises(UserError, match=f"{size[0]}x{size[1]}"):
        method_impl.plan(method_impl.Config(), stage(*size), BUDGET)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("dp_merf", {}), ("ndpdc", {"iterations": 2}), ("psg_prior", {"runs": 1, "batches": 1})],
)
def test_other_sizes_are_planned(name, settings):
    method_impl = method(name)
    assert (
        method_impl.plan(method_impl.Config(**settings), stage(32, 32), BUDGET).parties[0].bytes_up
        > 0
    )


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, SMALLER.get(name, {})) for name in able(dataset_info(LARGE))),
        *((name, RESNET) for name in ("gs_wgan", "gan")),
    ],
)
def test_64x64_colour_images_are_released(name, changes, here, tmp_path):
    job = tiny.tiny_job(name, tmp_path / "run", changes=changes)
    job = dataclasses.replace(job, scenario=LARGE)
    tiny.release(job, here)
    outcome = RunDirectory(tmp_path / "run").releases.load(job.name, 1)
    if isinstance(outcome, ReleasedModel):
        assert all(torch.isfinite(value).all() for value in outcome.state.values())
        return
    assert outcome.images.shape == (len(outcome.labels), 3, 64, 64)
    assert torch.isfinite(outcome.images.float()).all()
