"""Tests of gradients, head and features against naive versions."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.data.records import class_indices
from fedsynth.methods.sketch_teach.linear_teacher import (
    FeatureMap,
    Head,
    first_head,
    gradient_factors,
)
from fedsynth.nn.classifiers.poolnet import PoolNet
from fedsynth.privacy.outer_products import clipped_outer_sum

CPU = torch.device("cpu")


def rows_and_labels(n: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(n, 7, generator=generator), torch.arange(n) % 4


def test_gradient_factors_are_the_gradients_of_single_records() -> None:
    rows, places = rows_and_labels()
    weights = torch.randn(4, 7, generator=torch.Generator().manual_seed(4))
    left, right = gradient_factors(weights, rows, places)
    for i in range(len(rows)):
        variable = weights.clone().requires_grad_()
        loss = functional.cross_entropy(rows[i : i + 1] @ variable.T, places[i : i + 1])
        (slope,) = torch.autograd.grad(loss, variable)
        torch.testing.assert_close(torch.outer(left[i], right[i]), slope, rtol=1e-4, atol=1e-6)
        product = float(left[i].norm() * right[i].norm())
        assert float(slope.norm()) == pytest.approx(product, rel=1e-4)


def test_the_gradient_of_a_record_does_not_depend_on_its_place() -> None:
    """Rows of 26 numbers lie at two alignments in turn. With scores in float32 their last bits
    followed it, and of 300,000 records one without any gradient moved the sum by .03 clips."""
    generator = torch.Generator().manual_seed(60)
    weights = torch.randn(10, 26, generator=generator) / 5
    row = torch.randn(1, 26, generator=generator)
    places = torch.zeros(300_000, dtype=torch.int64)
    rows = row.repeat(len(places), 1)
    rows[::2] = 0.0
    sums = []
    for first in (0, 1):
        left, right = gradient_factors(weights, rows[first:].clone(), places[first:])
        clip = 1.01 * float(left[1 - first].norm() * row.norm())
        sums.append(clipped_outer_sum(left, right, clip) / clip)
    assert float((sums[0] - sums[1]).norm()) < 1e-6


def test_a_record_of_a_class_without_output_has_no_gradient() -> None:
    """For any order and weights a party neither fails nor trains another class."""
    rows, labels = rows_and_labels()
    places = class_indices(labels, [3, 0, 1])
    assert places.tolist() == [1, 2, -1, 0] * 3
    for classes in (3, 2):
        left, _ = gradient_factors(torch.zeros(classes, 7), rows, places)
        silent = (places < 0) | (places >= classes)
        assert torch.equal(left.abs().sum(1) == 0, silent)


def test_the_head_uses_momentum_and_averages_its_second_half() -> None:
    head = Head(torch.tensor([[2.0]]), steps=5, learning_rate=0.1, momentum=0.5)
    weight, velocity, kept = 2.0, 0.0, []
    for step in range(5):
        head.step(step, torch.tensor([[weight - 1.0]]))
        velocity = 0.5 * velocity + (weight - 1.0)
        weight -= 0.1 * velocity
        kept.append(weight)
    assert float(head.weights) == pytest.approx(weight)
    assert float(head.result()) == pytest.approx(sum(kept[2:]) / 3)


def test_the_first_head_reproduces_the_logits() -> None:
    rows = torch.randn(500, 6, generator=torch.Generator().manual_seed(5))
    truth = torch.randn(3, 6, generator=torch.Generator().manual_seed(6))
    logits = rows @ truth.T + 5.0  # a constant for all classes changes no probability
    found = rows @ first_head(rows, logits).T
    torch.testing.assert_close(found.softmax(1), logits.softmax(1), rtol=0, atol=0.02)


def feature_map(with_scattering: bool = True, width: int = 4) -> tuple[FeatureMap, torch.Tensor]:
    with default_seed("features"):
        net = PoolNet(width, 3, 28).eval()
    pool = torch.rand(300, 1, 28, 28, generator=torch_generator("pool"))
    return FeatureMap.fit(net, pool, with_scattering), pool


@pytest.mark.parametrize("with_scattering", [True, False])
def test_features_are_whitened_and_computed_per_image(
    with_scattering: bool,
) -> None:
    features, pool = feature_map(with_scattering)
    rows = features(pool)
    assert rows.shape == (300, features.width)
    assert features.width == 4 * 2 * 9 + (729 if with_scattering else 0) + 1
    assert (rows[:, -1] == 0.3).all()
    white = rows[:, :-1]
    assert float(white.mean(0).abs().max()) < 1e-3
    assert float(white.square().sum(1).mean()) == pytest.approx(1.0, rel=1e-2)
    covariance = white.T @ white
    off = covariance - torch.diag(covariance.diagonal())
    assert float(off.abs().max()) < 1e-2 * float(covariance.diagonal().max())
    torch.testing.assert_close(features(pool[7:9]), rows[7:9], rtol=1e-3, atol=1e-4)


def test_features_stay_small_if_all_images_are_alike() -> None:
    with default_seed("features"):
        net = PoolNet(4, 3, 28).eval()
    features = FeatureMap.fit(net, torch.zeros(50, 1, 28, 28), with_scattering=True)
    rows = features(torch.rand(20, 1, 28, 28, generator=torch_generator("others")))
    assert rows.isfinite().all()
    assert float(rows.norm(dim=1).max()) < 1e6


def test_features_survive_as_arrays() -> None:
    features, pool = feature_map()
    again = FeatureMap.from_arrays(features.arrays(), 4, 3, CPU)
    assert torch.equal(again(pool[:5]), features(pool[:5]))
