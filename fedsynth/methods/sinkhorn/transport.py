"""Entropic optimal transport between two small clouds of labelled images, and its slope."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LABEL_SCALE = 15.0  # length of a one-hot label beside the pixels
SCALING = 0.5  # every round of Sinkhorn's iteration halves the blur, down to the one wanted


@dataclass(frozen=True)
class PointCloud:
    """Points of equal weight: rows [n, d] of pixels in [-1, 1], and labels [n]."""

    points: Tensor
    labels: Tensor


def cost(one: PointCloud, other: PointCloud, l1_share: float) -> Tensor:
    """|x - y|^2 + l1_share |x - y|_1 over pixels and one-hot labels, [n, m]."""
    squares = torch.cdist(one.points, other.points).square()
    apart = one.labels[:, None] != other.labels[None, :]
    found = squares + apart * (2 * LABEL_SCALE**2 + 2 * LABEL_SCALE * l1_share)
    if l1_share:
        found = found + l1_share * torch.cdist(one.points, other.points, p=1)
    return found


def plan(costs: Tensor, blur: float) -> Tensor:
    """Where each point of the first cloud goes, rows that sum to one: Sinkhorn's symmetric
    iteration in logarithms, from a blur as wide as the largest cost down to `blur`."""
    n, m = costs.shape
    widest = max(float(costs.max()), blur)
    rounds = 1 + math.ceil(math.log(widest / blur) / -math.log(SCALING))
    blurs = [max(blur, widest * SCALING**k) for k in range(rounds)] + [blur]
    left, right = costs.new_zeros(n), costs.new_zeros(m)
    for now in blurs:
        new_left = -now * torch.logsumexp((right - costs) / now - math.log(m), dim=1)
        new_right = -now * torch.logsumexp((left[:, None] - costs) / now - math.log(n), dim=0)
        left, right = (left + new_left) / 2, (right + new_right) / 2
    return torch.softmax((right - costs) / blur, dim=1)


def slope(moved: PointCloud, fixed: PointCloud, blur: float, l1_share: float) -> Tensor:
    """The gradient of the transport cost W(moved, fixed) at the points of the first cloud, the
    plan held fixed; zero where there is nothing to go to."""
    if not len(fixed.points):
        return torch.zeros_like(moved.points)
    goes = plan(cost(moved, fixed, l1_share), blur)
    found = 2 * (moved.points - goes @ fixed.points)
    if l1_share:
        signs = (moved.points[:, None, :] - fixed.points[None, :, :]).sign()
        found = found + l1_share * (goes[:, :, None] * signs).sum(1)
    return found / len(moved.points)
