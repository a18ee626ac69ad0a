"""Directions that stand out of noise, and what classes may borrow from one another."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.methods._directions import EDGE, Noised, own_directions, shared_directions


def noised(true: torch.Tensor, deviation: float, seed: int) -> Noised:
    """A symmetric matrix under noise of the kind the sketch carries."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(true.shape, generator=generator, dtype=torch.float64)
    return Noised(true + deviation * (raw + raw.T) / math.sqrt(2), deviation)


def matrix(directions: torch.Tensor) -> torch.Tensor:
    """The covariance that directions times deviations stand for."""
    return directions.T @ directions


def alike(size: int, kept: int, seed: int) -> list[torch.Tensor]:
    """Four covariances with the same directions and variances of their own."""
    generator = torch.Generator().manual_seed(seed)
    turned, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    basis = turned[:, :kept]
    factors = 0.5 + torch.rand(4, kept, generator=generator, dtype=torch.float64)
    return [(basis * row / torch.arange(1, kept + 1)) @ basis.T for row in factors]


def test_noise_has_the_edge_and_the_size_that_are_taken_off() -> None:
    found = noised(torch.zeros(120, 120, dtype=torch.float64), 0.5, 0)
    largest = float(torch.linalg.eigvalsh(found.matrix).max())
    assert largest == pytest.approx(found.edge, rel=0.1)
    expected = 0.5**2 * 120 * 121
    assert float(found.matrix.square().sum()) == pytest.approx(expected, rel=0.05)
    assert len(own_directions(Noised(torch.zeros(9, 9).double(), 1.0))) == 0


def test_without_noise_both_ways_give_the_matrix_back() -> None:
    true = alike(12, 5, 1)
    found = [Noised(one, 0.0) for one in true]
    for one, directions, own in zip(
        true, shared_directions(found, [10, 20, 30, 40]), map(own_directions, found), strict=True
    ):
        torch.testing.assert_close(matrix(directions), one, atol=1e-9, rtol=1e-6)
        torch.testing.assert_close(matrix(own), one, atol=1e-9, rtol=1e-6)


def test_classes_that_vary_alike_are_known_better_together() -> None:
    apart, together = 0.0, 0.0
    for seed in range(5):
        true = alike(40, 8, seed)
        found = [noised(one, 0.02, 10 * seed + i) for i, one in enumerate(true)]
        shared = shared_directions(found, [1.0] * 4)
        for one, mine, ours in zip(true, map(own_directions, found), shared, strict=True):
            apart += float((matrix(mine) - one).square().sum())
            together += float((matrix(ours) - one).square().sum())
    assert together < 0.8 * apart


def test_a_class_with_a_direction_of_its_own_keeps_it() -> None:
    true = alike(30, 4, 3)
    alone = torch.zeros(30, 30, dtype=torch.float64)
    alone[29, 29] = 3.0
    true[2] = true[2] + alone
    found = [noised(one, 0.01, i) for i, one in enumerate(true)]
    shared = shared_directions(found, [5.0] * 4)
    assert float(matrix(shared[2])[29, 29]) == pytest.approx(float(true[2][29, 29]), rel=0.15)
    for other in (0, 1, 3):
        assert float(matrix(shared[other])[29, 29]) < 0.5


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.floats(1e-6, 100.0),
    st.integers(0, 10_000),
    st.booleans(),
)
def test_whatever_the_noise_the_result_is_finite_and_fits(
    size: int, classes: int, deviation: float, seed: int, empty: bool
) -> None:
    true = torch.zeros(size, size, dtype=torch.float64) if empty else torch.eye(size).double()
    found = [noised(true, deviation, seed + i) for i in range(classes)]
    shared = shared_directions(found, [1.0 + i for i in range(classes)])
    assert len(shared) == classes
    for directions in shared:
        assert directions.shape[1] == size
        assert len(directions) <= size
        assert torch.isfinite(directions).all()


def test_a_class_alone_borrows_from_itself_only() -> None:
    found = noised(alike(20, 5, 4)[0], 0.01, 0)
    values, vectors = found.standing_out()
    assert (values > found.edge / 2 * EDGE).all()
    (directions,) = shared_directions([found], [7.0])
    outside = directions - directions @ vectors @ vectors.T
    assert float(outside.abs().max()) < 1e-9
