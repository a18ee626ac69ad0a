"""Process noise in gradients: the covariance and the norm that privacy rests on, written out."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd.functional import jacobian

from fedsynth.methods.kernel.gradient_process import GradientNoise, mean_kernel_gradients

SCALES = [0.7, 2.0]


def points(m: int, d: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((m, d), generator=generator, dtype=torch.float64)


def kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    squares = (a - b).square().sum()
    return sum(torch.exp(-squares / (2 * s * s)) for s in SCALES) / len(SCALES)


def covariance(y: torch.Tensor) -> torch.Tensor:
    """Of the gradients of a process with covariance `kernel` at the points, by differentiation."""

    def mixed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return jacobian(lambda v: jacobian(lambda u: kernel(u, v), a, create_graph=True), b)

    rows = [torch.cat([mixed(a, b) for b in y], dim=1) for a in y]
    return torch.cat(rows)


@given(st.integers(1, 4), st.integers(2, 6), st.integers(0, 100))
@settings(max_examples=12, deadline=None)
def test_released_noise_has_the_covariance_of_the_process(m, d, seed):
    """White noise in, the process's gradients out: L L' is the covariance."""
    y = points(m, d, seed)
    noise = GradientNoise(y, SCALES)
    root = torch.stack(
        [noise.gradients(row).flatten() for row in torch.eye(noise.width).double()], 1
    )
    expected = covariance(y)
    torch.testing.assert_close(root @ root.T, expected, rtol=0, atol=1e-5 * float(expected.max()))


@given(st.integers(1, 4), st.integers(2, 6), st.integers(0, 100), st.floats(0.01, 3))
@settings(max_examples=12, deadline=None)
def test_rows_are_whitened_gradients_and_never_longer_than_one(m, d, seed, far):
    y, x = points(m, d, seed), far * points(5, d, seed + 1)
    noise = GradientNoise(y, SCALES)
    rows = noise.rows(x)
    assert rows.shape == (5, noise.width)
    assert rows.norm(dim=1).max() <= 1 + 1e-9
    for record, row in zip(x, rows, strict=True):
        gradients = torch.stack([jacobian(lambda u, r=record: kernel(u, r), place) for place in y])
        torch.testing.assert_close(noise.gradients(row), gradients, rtol=0, atol=1e-4)


def test_images_that_are_the_same_can_be_factored_too():
    y = points(1, 4, 0).expand(3, -1)
    rows = GradientNoise(y, SCALES).rows(points(5, 4, 1))
    assert torch.isfinite(rows).all()
    assert rows.norm(dim=1).max() <= 1 + 1e-9


def test_a_record_on_a_point_is_seen_by_the_others_only():
    """A kernel is flat at its own centre."""
    y = points(1, 4, 0)
    assert GradientNoise(y, SCALES).rows(y).norm() < 1e-9


def test_what_pushes_images_apart_is_the_gradient_of_their_mean_kernel():
    y = points(4, 3, 2).requires_grad_()
    mean = torch.stack([kernel(a, b) for a in y for b in y]).mean()
    (expected,) = torch.autograd.grad(mean, y)
    torch.testing.assert_close(mean_kernel_gradients(y.detach(), SCALES), expected)


def test_gradients_at_one_point_of_one_scale_reach_three_fifths_of_the_bound():
    """r exp(-r^2 / 2) at r lengths of distance: at most exp(-1 / 2), where the bound is one."""
    noise = GradientNoise(torch.zeros(1, 6), [2.0])
    directions = torch.eye(6)[:1]
    for r in (0.1, 0.5, 1.0, 2.0, 4.0):
        norm = float(noise.rows(2.0 * r * directions).norm())
        assert norm == pytest.approx(r * math.exp(-(r**2) / 2), rel=1e-4)
        assert norm <= math.exp(-0.5) * (1 + 1e-6)
