"""The feature maps of DP-NTK and DP-HP: what they approximate, and the norm privacy rests on."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedsynth.core.types import DatasetInfo
from fedsynth.methods.mean_embedding.base import EmbeddingMethod, FeatureMap
from fedsynth.methods.mean_embedding.dp_hp import DPHPConfig, HermiteFeatures, hermite_features
from fedsynth.methods.mean_embedding.dp_ntk import TangentFeatures
from fedsynth.methods.registry import method

FACTS = DatasetInfo("tiny", (1, 4, 4), 3, (0.5,), (0.25,))
SMALL = {
    "dp_merf": {"features": 12},
    "dp_ntk": {"hidden": 6},
    "dp_hp": {"order": 3, "product_order": 2, "pairs": 5},
}


def pixels(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand((n, 1, 4, 4), generator=torch.Generator().manual_seed(seed))


def a_map(name: str, seed: int = 0) -> tuple[FeatureMap, int]:
    some = method(name)
    assert isinstance(some, EmbeddingMethod)
    cfg = some.Config(**SMALL[name])
    return some.features(cfg, FACTS, seed), some.width(cfg, FACTS)


@pytest.mark.parametrize("name", SMALL)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.01, 1.0]))
@settings(max_examples=15, deadline=None)
def test_no_image_has_features_longer_than_one(name, seed, brightness):
    features, width = a_map(name, seed)
    rows = features(pixels(6, seed) * brightness)
    assert rows.shape == (6, width)
    assert torch.isfinite(rows).all()
    assert rows.norm(dim=1).max() <= 1 + 1e-5


@pytest.mark.parametrize("name", SMALL)
def test_weighted_sums_are_those_of_the_rows(name):
    features, _ = a_map(name)
    generator = torch.Generator().manual_seed(1)
    shares = torch.rand((5, 3), generator=generator)
    expected = torch.stack(
        [sum(s * row for s, row in zip(c, features(pixels(5)), strict=True)) for c in shares.t()]
    )
    torch.testing.assert_close(
        features.weighted_sums(pixels(5), shares), expected, rtol=1e-4, atol=1e-6
    )


def test_tangent_features_are_the_gradient_of_a_network_by_autograd():
    features = TangentFeatures(16, 6, ("key",))
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 1, bias=False))
    with torch.no_grad():
        net[1].weight.copy_(features.inner[:, :-1])
        net[1].bias.copy_(features.inner[:, -1])
        net[3].weight.copy_(features.outer[None])
    for image in pixels(4):
        by_weight = torch.autograd.grad(net(image[None]).sum(), list(net.parameters()))
        weight, bias, outer = by_weight
        gradient = torch.cat([torch.cat([weight, bias[:, None]], 1).flatten(), outer.flatten()])
        found = features(image[None])[0]
        torch.testing.assert_close(found, gradient / gradient.norm(), rtol=1e-4, atol=1e-6)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.25, 2.0))
@settings(max_examples=25, deadline=None)
def test_products_of_hermite_features_are_the_gaussian_kernel(x, y, length):
    rows = hermite_features(torch.tensor([x, y], dtype=torch.float64), 400, length)
    expected = math.exp(-((x - y) ** 2) / (2 * length**2))
    assert float(rows[0] @ rows[1]) == pytest.approx(expected, abs=1e-6)


def test_hermite_features_are_the_sum_and_product_kernels():
    cfg = DPHPConfig(order=60, product_order=60, pairs=7, product_share=0.3, length_scale=0.4)
    features = HermiteFeatures(cfg, 16, ("key",))
    x = pixels(2).double()
    rows = features(x)
    one = torch.exp(-((x[0] - x[1]).flatten() ** 2) / (2 * 0.4**2))
    pairs = (one[features.first] * one[features.second]).mean()
    expected = 0.7 * one.mean() + 0.3 * pairs
    assert float(rows[0] @ rows[1]) == pytest.approx(float(expected), abs=1e-4)
