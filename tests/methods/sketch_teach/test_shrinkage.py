"""Tests of eigenvalues above noise and of shrinkage."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.methods.sketch_teach.shrinkage import (
    NoisySymmetricMatrix,
    james_stein,
    shrink_covariance,
)


def noised(true: torch.Tensor, deviation: float, seed: int) -> NoisySymmetricMatrix:
    """A symmetric matrix under noise of the kind the sketch carries."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(true.shape, generator=generator, dtype=torch.float64)
    return NoisySymmetricMatrix(true + deviation * (raw + raw.T) / math.sqrt(2), deviation)


def covariance(factor: torch.Tensor) -> torch.Tensor:
    """The covariance of a factor."""
    return factor.T @ factor


def rotation(size: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]


def test_edge_is_the_largest_eigenvalue_of_noise() -> None:
    found = noised(torch.zeros(120, 120, dtype=torch.float64), 0.5, 0)
    largest = float(torch.linalg.eigvalsh(found.matrix).max())
    assert largest == pytest.approx(found.edge, rel=0.1)
    values, vectors = found.leading(50)
    assert vectors.shape == (120, 1)  # never less than one
    assert float(values) <= largest * (1 + 1e-9)


def test_leading_eigenvalues_are_found_without_the_bias_of_noise() -> None:
    variances = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    basis = rotation(60, 1)[:, :3]
    sizes = []
    for seed in range(10):
        values, vectors = noised((basis * variances) @ basis.T, 0.02, seed).leading(10)
        assert len(values) == 3
        assert float(torch.linalg.svdvals(basis.T @ vectors).min()) > 0.95
        sizes.append(values)
    torch.testing.assert_close(torch.stack(sizes).mean(0), variances, rtol=0.03, atol=0)
    assert len(noised((basis * variances) @ basis.T, 0.02, 0).leading(2)[0]) == 2


def test_without_noise_a_covariance_is_unchanged() -> None:
    basis = rotation(12, 2)
    own = (basis * torch.arange(1.0, 13.0)) @ basis.T
    for expected in (torch.ones(12).double(), torch.eye(12).double()):
        torch.testing.assert_close(
            covariance(shrink_covariance(NoisySymmetricMatrix(own, 0.0), expected)), own
        )


def test_shrinkage_reduces_the_error_if_the_target_is_similar() -> None:
    expected = 1 / torch.arange(1.0, 31.0, dtype=torch.float64)
    alone, together = 0.0, 0.0
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        factors = 0.8 + 0.4 * torch.rand(30, generator=generator, dtype=torch.float64)
        true = 2.0 * torch.diag(expected * factors)  # larger, and a little different
        found = noised(true, 0.05, 10 + seed)
        alone += float((found.matrix - true).square().sum())
        together += float((covariance(shrink_covariance(found, expected)) - true).square().sum())
    assert together < 0.3 * alone


def test_a_difference_beyond_the_noise_is_kept() -> None:
    true = torch.diag(torch.tensor([0.0, 0.0, 5.0, 0.0], dtype=torch.float64))
    found = shrink_covariance(noised(true, 1e-3, 0), torch.tensor([5.0, 1.0, 0.1, 0.0]).double())
    torch.testing.assert_close(covariance(found), true, atol=5e-3, rtol=0)


def test_james_stein_reduces_the_error_of_a_vector() -> None:
    true = torch.full((40,), 0.5, dtype=torch.float64)
    torch.testing.assert_close(james_stein(true, 0.0), true)
    assert not james_stein(true, 1.0).any()
    lost, kept = 0.0, 0.0
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        seen = true + 0.5 * torch.randn(40, generator=generator, dtype=torch.float64)
        lost += float((seen - true).square().sum())
        kept += float((james_stein(seen, 0.5) - true).square().sum())
    assert kept < lost


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.floats(1e-6, 100.0), st.integers(0, 10_000), st.booleans())
def test_results_are_finite_with_any_noise(
    size: int, deviation: float, seed: int, empty: bool
) -> None:
    true = torch.zeros(size, size, dtype=torch.float64) if empty else torch.eye(size).double()
    found = noised(true, deviation, seed)
    values, vectors = found.leading(150)
    assert torch.isfinite(values).all()
    assert vectors.shape == (size, len(values))
    directions = shrink_covariance(found, torch.ones(size).double())
    assert directions.shape == (size, size)
    assert torch.isfinite(directions).all()
