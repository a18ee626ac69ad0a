"""The server's generator of DataLens."""

from __future__ import annotations

import dataclasses

import torch
from tiny_teachers import BUDGET, SETTINGS, STAGE

from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.generator import StudentGenerator
from fedsynth.methods.pate.datalens.parameters import DataLensParameters

CONFIG = DataLensConfig(**SETTINGS)


def student(cfg: DataLensConfig = CONFIG) -> StudentGenerator:
    parameters = DataLensParameters.of(cfg, STAGE, BUDGET)
    return StudentGenerator(cfg, parameters, STAGE, ("s",), torch.device("cpu"))


def test_the_generator_moves_towards_its_images_plus_the_direction():
    """The first of Adam's steps, against the loss as it is printed."""
    ours, plain = student(), student()
    direction = torch.randint(-1, 2, (3, 64), generator=torch.Generator().manual_seed(0)).float()
    ours.learn(0, direction)
    latents, labels = plain._inputs(0)
    images = plain.generator(latents, labels)
    target = (images + CONFIG.step_size * direction.view_as(images)).detach()
    adam = torch.optim.Adam(plain.generator.parameters(), CONFIG.learning_rate, betas=(0.5, 0.999))
    ((target - plain.generator(latents, labels)) ** 2).sum().backward()
    adam.step()
    for a, b in zip(ours.generator.parameters(), plain.generator.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_query_has_the_images_voted_on_among_those_of_every_class():
    arrays = student().query(2, 0).arrays
    assert arrays["made"].shape == (3, 3, 1, 8, 8)
    assert arrays["images"].shape == (3, 1, 8, 8)
    assert torch.equal(arrays["images"], student().query(2, 0).arrays["images"])
    assert not torch.equal(arrays["images"], student().query(3, 0).arrays["images"])


def test_a_sample_has_equally_many_images_of_every_class():
    stage = dataclasses.replace(STAGE, classes=(2, 0, 1))
    parameters = DataLensParameters.of(CONFIG, stage, BUDGET)
    made = StudentGenerator(CONFIG, parameters, stage, ("s",), torch.device("cpu")).sample()
    assert made.labels.tolist() == [2, 0, 1] * 4
    assert made.images.shape == (12, 1, 8, 8)
