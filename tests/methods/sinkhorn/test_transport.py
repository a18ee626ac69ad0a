"""Optimal transport between small clouds: against assignments and against sums written out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from fedsynth.methods.sinkhorn.transport import (
    LABEL_SCALE,
    PointCloud,
    cost,
    transport_gradient,
    transport_plan,
)


def cloud(n: int, seed: int, classes: int = 3, d: int = 5) -> PointCloud:
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand((n, d), generator=generator, dtype=torch.float64) * 2 - 1
    return PointCloud(points, torch.randint(classes, (n,), generator=generator))


@given(st.integers(0, 1000), st.sampled_from([0.0, 1.0, 3.0]))
@settings(max_examples=15, deadline=None)
def test_the_cost_is_that_of_points_with_their_one_hot_labels_appended(seed, l1):
    one, other = cloud(4, seed), cloud(6, seed + 1)
    rows = [
        torch.cat([c.points, LABEL_SCALE * torch.nn.functional.one_hot(c.labels, 3)], dim=1)
        for c in (one, other)
    ]
    apart = rows[0][:, None] - rows[1][None]
    expected = apart.square().sum(-1) + l1 * apart.abs().sum(-1)
    torch.testing.assert_close(cost(one, other, l1), expected)


@given(st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_with_little_blur_the_plan_is_the_best_assignment(seed):
    """Points that lie near their partners, one to one."""
    start = cloud(6, seed)
    generator = torch.Generator().manual_seed(seed)
    near = start.points + 0.02 * torch.randn((6, 5), generator=generator, dtype=torch.float64)
    order = torch.randperm(6, generator=generator)
    costs = cost(start, PointCloud(near[order], start.labels[order]), 1.0)
    found = transport_plan(costs, 0.005)
    torch.testing.assert_close(found.sum(1), torch.ones(6, dtype=torch.float64))
    assert found.argmax(1).tolist() == linear_sum_assignment(costs.numpy())[1].tolist()


def test_labels_keep_their_own():
    """A label weighs so much that everything goes to its own class, however far."""
    one, other = cloud(30, 1), cloud(30, 2)
    other.labels.copy_(one.labels)
    goes = transport_plan(cost(one, other, 1.0), 0.05)
    apart = one.labels[:, None] != other.labels[None, :]
    assert goes[apart].sum() < 1e-3 * 30


@pytest.mark.parametrize("l1", [0.0, 1.0])
def test_the_gradient_is_that_of_the_cost_with_the_plan_held_fixed(l1):
    moved, fixed = cloud(5, 3), cloud(7, 4)
    goes = transport_plan(cost(moved, fixed, l1), 0.05)
    points = moved.points.clone().requires_grad_()
    squares = (points[:, None] - fixed.points[None]).square().sum(-1)
    lengths = (points[:, None] - fixed.points[None]).abs().sum(-1)
    (expected,) = torch.autograd.grad((goes * (squares + l1 * lengths)).sum() / 5, points)
    torch.testing.assert_close(transport_gradient(moved, fixed, 0.05, l1), expected)


def test_gradient_descent_brings_the_clouds_together():
    moved, fixed = cloud(8, 5), cloud(8, 6)
    fixed.labels.copy_(moved.labels)

    def distance(points: torch.Tensor) -> float:
        costs = cost(PointCloud(points, moved.labels), fixed, 0.0)
        return float((transport_plan(costs, 0.05) * costs).sum())

    points = moved.points.clone()
    for _ in range(50):
        points -= (
            0.3 * 8 / 2 * transport_gradient(PointCloud(points, moved.labels), fixed, 0.05, 0.0)
        )
    assert distance(points) < 0.05 * distance(moved.points)


def test_where_there_is_nothing_to_go_to_nothing_moves():
    empty = PointCloud(torch.zeros(0, 5, dtype=torch.float64), torch.zeros(0, dtype=torch.int64))
    assert torch.equal(
        transport_gradient(cloud(4, 0), empty, 0.05, 1.0), torch.zeros(4, 5).double()
    )
