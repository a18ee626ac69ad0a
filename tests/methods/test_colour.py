"""Tests of every image method on 32 x 32 colour images, with one class at each of ten parties."""

from __future__ import annotations

import dataclasses

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import ReleasedModel
from fedsynth.data import registry as datasets
from fedsynth.experiment.method_selection import able, refuse_unfit
from fedsynth.experiment.scenario import ScenarioConfig
from fedsynth.methods.registry import all_methods

COLOUR = ScenarioConfig(data="made_colour", parties=10, stages="together", holdout=1000)
DATA = datasets.find("made_colour").info
GREY_ONLY = {"sketch_teach", "sketch_teach_joint"}


def colour_job(name, out):
    return dataclasses.replace(tiny.tiny_job(name, out), scenario=COLOUR)


@pytest.mark.parametrize("name", able(DATA))
def test_a_method_releases_colour_images_that_can_be_evaluated(name, here, tmp_path):
    job = colour_job(name, tmp_path / "run")
    assert all(len(info.class_counts) == 1 for info in job.plan(0).stage.parties)
    run = tiny.release_and_judge([job], here)
    (accuracy,) = [m.value for m in run.metrics() if m.metric == "accuracy"]
    assert 0 <= accuracy <= 1
    if not job.method_impl.private:
        return
    outcome = run.releases.load(job.name, 1)
    if isinstance(outcome, ReleasedModel):
        assert all(torch.isfinite(value).all() for value in outcome.state.values())
        return
    assert outcome.images.shape == (len(outcome.labels), *DATA.shape)
    assert torch.isfinite(outcome.images).all()
    channels = outcome.images.transpose(0, 1).flatten(1)
    assert not torch.allclose(channels[0], channels[1], atol=1e-3), "grey, not coloured"


def test_a_method_for_grey_images_is_refused_with_the_methods_that_can(tmp_path):
    for_images = {name for name, m in all_methods().items() if DataKind.IMAGE in m.kinds}
    assert for_images - set(able(DATA)) == GREY_ONLY
    for name in GREY_ONLY:
        with pytest.raises(UserError, match=f"method={name} cannot .*have 3x32x32.* psg,"):
            refuse_unfit(["psg", name], DATA)
        with pytest.raises(UserError, match=r"grey images .*have 3x32x32"):
            colour_job(name, tmp_path).plan(0)
