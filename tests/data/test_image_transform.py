"""Images in another form: what is public about them changes as the images do."""

from __future__ import annotations

import dataclasses

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data.image_transform import ImageTransform
from fedsynth.experiment import scenario
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.experiment.scenario import (
    ScenarioConfig,
    party_records,
    scenario_stages,
    setting_in_words,
)
from fedsynth.experiment.scenario_config import dataset_info
from fedsynth.storage.run_directory import RunDirectory

COLOUR = datasets.find("made_colour").info


@pytest.mark.parametrize(
    "form",
    [
        ImageTransform(16),
        ImageTransform(48),
        ImageTransform(grey=True),
        ImageTransform(28, True),
        ImageTransform(),
    ],
)
def test_facts_and_images_agree(form):
    images, _ = datasets.load("made_colour", "train")
    made = form.apply(images)
    assert made.dtype == torch.uint8
    assert made.shape == (len(images), *form.info(COLOUR).shape)
    assert len(form.info(COLOUR).mean) == len(form.info(COLOUR).std) == made.shape[1]
    pixels = made.double() / 255
    for channel, mean in enumerate(form.info(COLOUR).mean):
        assert abs(pixels[:, channel].mean() - mean) < 0.01


def test_what_is_as_wanted_is_left_alone():
    images, _ = datasets.load("made_colour", "test")
    assert ImageTransform(32).apply(images) is images
    assert ImageTransform().info(COLOUR) is COLOUR
    grey, _ = datasets.load("shapes", "test")
    assert ImageTransform(28, grey=True).apply(grey) is grey


def test_an_image_is_changed_by_itself():
    """Nothing of one record may come into another's."""
    images, _ = datasets.load("made_colour", "test")
    form = ImageTransform(20, grey=True)
    alone = torch.cat([form.apply(images[k : k + 1]) for k in range(5)])
    assert torch.equal(form.apply(images[:5]), alone)


def test_halving_is_averaging_and_grey_is_luma():
    flat = torch.tensor([200, 100, 50], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 8, 8)
    assert (ImageTransform(4).apply(flat)[0, :, 0, 0]).tolist() == [200, 100, 50]
    assert ImageTransform(grey=True).apply(flat).unique().tolist() == [round(59.8 + 58.7 + 5.7)]


def test_a_world_in_another_form():
    config = ScenarioConfig(data="made_colour", partition="single", parties=1, resize=28, grey=True)
    assert dataset_info(config).shape == scenario_stages(config)[0].data.shape == (1, 28, 28)
    assert party_records(config, 0).images.shape[1:] == (1, 28, 28)
    assert scenario.test_records(config).images.shape[1:] == (1, 28, 28)
    assert "images made 28x28 and made grey" in setting_in_words(config)
    held = dataclasses.replace(config, holdout=100)
    assert scenario.test_records(held).images.shape == (100, 1, 28, 28)


def test_a_method_for_grey_images_is_there_for_what_is_made_grey():
    words = ["scenario=classification", "data=made_colour", "preset=smoke"]
    assert resolve(parse_overrides(words)).left_out == ("sketch_teach",)
    config = resolve(parse_overrides([*words, "grey=true", "resize=28"]))
    assert not config.left_out
    assert "sketch_teach" in config.methods


def test_a_release_has_the_form(here, tmp_path):
    job = tiny.tiny_job("ldpdc", tmp_path / "run")
    config = dataclasses.replace(job.scenario, resize=16)
    job = dataclasses.replace(job, scenario=config)
    run = tiny.release_and_judge([job], here)
    assert isinstance(run, RunDirectory)
    assert run.releases.load(job.name, 1).images.shape[1:] == (1, 16, 16)


@pytest.mark.parametrize("words", ["resize=28", "grey=true"])
def test_a_table_has_no_form(words):
    with pytest.raises(UserError, match=r"is for images, and data=made_table is a table"):
        resolve(parse_overrides(["scenario=classification", "data=made_table", words]))


def test_a_side_must_be_a_side():
    with pytest.raises(UserError, match="resize=2 must be at least 4"):
        resolve(parse_overrides(["scenario=classification", "resize=2"]))
