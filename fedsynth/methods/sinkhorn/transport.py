"""Entropic optimal transport between two small clouds of labelled images, and its gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LABEL_SCALE = 15.0  # length of a one-hot label beside the pixels
SCALING = 0.5  # the factor on the blur in every round of Sinkhorn's iteration


@dataclass(frozen=True)
class PointCloud:
    """Points of equal weight: rows [n, d] of pixels in [-1, 1], and labels [n]."""

    points: Tensor
    labels: Tensor


def cost(one: PointCloud, other: PointCloud, l1_share: float) -> Tensor:
    """|x - y|^2 + l1_share |x - y|_1 over pixels and one-hot labels, [n, m]."""
    squares = torch.cdist(one.points, other.points).square()
    apart = one.labels[:, None] != other.labels[None, :]
    costs = squares + apart * (2 * LABEL_SCALE**2 + 2 * LABEL_SCALE * l1_share)
    if l1_share:
        costs = costs + l1_share * torch.cdist(one.points, other.points, p=1)
    return costs


def largest_cost(pixels: int, l1_share: float) -> float:
    """A bound on the costs between clouds of so many pixels in [-1, 1]."""
    labels = 2 * LABEL_SCALE**2 + 2 * LABEL_SCALE * l1_share
    return 4 * pixels + 2 * pixels * l1_share + labels


def transport_plan(costs: Tensor, blur: float, largest: float | None = None) -> Tensor:
    """The share of each point of the first cloud that goes to each of the second: rows sum to one.

    Sinkhorn's symmetric iteration in logarithms, from a blur as wide as the largest cost down to
    `blur`; `largest` is a bound on the costs to start from, for which none of them is read."""
    n, m = costs.shape
    widest = max(float(costs.max()) if largest is None else largest, blur)
    rounds = 1 + math.ceil(math.log(widest / blur) / -math.log(SCALING))
    blurs = [max(blur, widest * SCALING**k) for k in range(rounds)] + [blur]
    left, right = costs.new_zeros(n), costs.new_zeros(m)
    for eps in blurs:
        new_left = -eps * torch.logsumexp((right - costs) / eps - math.log(m), dim=1)
        new_right = -eps * torch.logsumexp((left[:, None] - costs) / eps - math.log(n), dim=0)
        left, right = (left + new_left) / 2, (right + new_right) / 2
    return torch.softmax((right - costs) / blur, dim=1)


def transport_gradient(
    moved: PointCloud, fixed: PointCloud, blur: float, l1_share: float
) -> Tensor:
    """The gradient of the transport cost W(moved, fixed) at the points of the first cloud.

    The plan is held fixed. The gradient is zero where the second cloud is empty."""
    if not len(fixed.points):
        return torch.zeros_like(moved.points)
    costs, largest = cost(moved, fixed, l1_share), None
    if costs.device.type != "cpu":  # whose numbers would have to be waited for
        largest = largest_cost(moved.points.shape[1], l1_share)
    shares = transport_plan(costs, blur, largest)
    gradient = 2 * (moved.points - shares @ fixed.points)
    if l1_share:
        signs = (moved.points[:, None, :] - fixed.points[None, :, :]).sign()
        gradient = gradient + l1_share * (shares[:, :, None] * signs).sum(1)
    return gradient / len(moved.points)
