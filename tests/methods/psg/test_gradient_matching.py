"""The matching distance, the published loop lengths, and images of other classes."""

from __future__ import annotations

import dataclasses

import pytest
import tiny_runs as tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.data.normalization import Normalizer
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.methods.psg.gradient_matching import (
    MatchedImages,
    MatchingConfig,
    PrivateMatchingConfig,
    other_classes,
    row_cosine_distance,
)
from fedsynth.nn.classifiers.convnet import make_convnet


def naive_distance(real: list[torch.Tensor], synthetic: list[torch.Tensor]) -> float:
    total = 0.0
    for a, b in zip(real, synthetic, strict=True):
        if a.dim() > 1:
            for row_a, row_b in zip(a, b, strict=True):
                u, v = row_a.flatten().double(), row_b.flatten().double()
                total += float(1 - (u @ v) / (u.norm() * v.norm() + 1e-6))
    return total


def gradients(seed: int) -> list[torch.Tensor]:
    net = make_convnet(128, (1, 28, 28), 10, "shapes only")
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=generator) for p in net.parameters()]


@given(st.integers(0, 1000), st.floats(0.01, 100))
@settings(max_examples=5, deadline=None)
def test_the_distance_is_the_sum_over_rows_and_ignores_scale(seed, factor):
    real, synthetic = gradients(seed), gradients(seed + 1)
    distance = float(row_cosine_distance(real, synthetic))
    assert distance == pytest.approx(naive_distance(real, synthetic), rel=1e-4)
    scaled = float(row_cosine_distance([factor * g for g in real], synthetic))
    assert scaled == pytest.approx(distance, rel=1e-4)


def test_opposite_gradients_have_a_distance_of_two_per_row():
    real = gradients(0)
    assert float(row_cosine_distance(real, real)) == pytest.approx(0, abs=1e-2)
    rows = 128 * 3 + 10
    assert float(row_cosine_distance(real, [-g for g in real])) == pytest.approx(2 * rows, rel=1e-4)


def test_the_published_loop_lengths_follow_the_number_of_images():
    published = {1: (1, 1), 10: (10, 50), 20: (20, 25), 50: (50, 10)}
    assert {spc: MatchingConfig(spc=spc).outer_inner for spc in published} == published


def test_other_classes_are_earlier_images_and_noise():
    """inner_set=all: the images of earlier stages, and noise for the classes of later ones."""
    scenario = tiny.SCENARIOS["in_turn"]
    cfg = PrivateMatchingConfig(spc=3, inner_set="all", image_init=0.5)
    stage = scenario_stages(scenario)[1]
    matched = MatchedImages(cfg, stage.data, stage.classes, ("key",))
    earlier = SyntheticSet(torch.rand(4, 1, 28, 28), torch.tensor([5, 5, 6, 6]))
    others = other_classes(cfg, stage.data, matched, earlier)
    assert torch.equal(others.images[:4], earlier.images)
    future = sorted(set(range(10)) - {5, 6} - set(stage.classes))
    assert others.labels[4:].tolist() == [c for c in future for _ in range(3)]
    noise = Normalizer.standard(stage.data).to_network(others.images[4:])
    assert noise.std().item() == pytest.approx(0.5, rel=0.1)
    own = dataclasses.replace(cfg, inner_set="own")
    assert other_classes(own, stage.data, matched, earlier) is None
