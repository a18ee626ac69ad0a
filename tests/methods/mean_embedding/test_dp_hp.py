"""DP-HP: products of Hermite features approximate the kernels."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.methods.mean_embedding.dp_hp import DPHPConfig, HermiteFeatures, hermite_features


def pixels(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand((n, 1, 4, 4), generator=torch.Generator().manual_seed(seed))


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
