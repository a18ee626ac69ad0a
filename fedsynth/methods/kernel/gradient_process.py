"""Gaussian process noise for slopes of a kernel mean embedding, exactly, in finitely many numbers.

Let f = sum_i k(x_i, .) be the embedding of a sample, k a mixture of Gaussian kernels with
k(x, x) = 1. A Gaussian process with covariance k, added to f, makes all of f private at once: one
record more or less moves f by norm one in the space of k. What a generator needs of f are its
slopes at its own images y_1..y_m, and there the process is a Gaussian vector whose covariance C is
known. So the release is L (sum_i L^-1 s_i + noise) with C = L L' and s_i the slopes of k(x_i, .):
rows L^-1 s_i have norm at most one, whatever x_i is, and this is what the guard clips them to.

C has m d rows, but in the directions in which the y do not differ it is the same small matrix for
each; `SlopeNoise` factors that one and the part inside the span of the y apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

RIDGE = 1e-6  # independent noise on top, relative, so that near duplicates can be factored


class SlopeNoise:
    """The factored covariance of a process's slopes at public points [m, d]."""

    def __init__(self, points: Tensor, lengths: Sequence[float]) -> None:
        """`lengths` are the length scales of the kernel's equal parts."""
        self.squares = torch.tensor([float(length) ** 2 for length in lengths])
        self.points = points.detach().double()
        m, d = self.points.shape
        away = self.points - self.points[0]
        self.inside = torch.linalg.qr(away[1:].T)[0]  # [d, r], spans all differences
        places = away @ self.inside
        apart = places[:, None, :] - places[None, :, :]
        parts = self._parts(apart.square().sum(-1))
        outside = (parts / self._column(parts)).sum(0)
        r = places.shape[1]
        outer = torch.einsum("lmn,mna,mnb->manb", parts / self._column(parts) ** 2, apart, apart)
        within = outside[:, None, :, None] * torch.eye(r).double()[None, :, None, :] - outer
        self.across = _factor(outside)
        self.along = _factor(within.reshape(m * r, m * r))
        self.places, self.width = places, m * (r + d)

    def rows(self, records: Tensor) -> Tensor:
        """The whitened slopes of k(x, .) for records x [n, d]: norm at most one."""
        x = records.to(self.points) - self.points[0]
        a = x @ self.inside
        rest = x - a @ self.inside.T
        apart = a[:, None, :] - self.places
        squares = apart.square().sum(-1) + rest.square().sum(-1, keepdim=True)
        parts = self._parts(squares)
        steep = (parts / self._column(parts)).sum(0)
        along = _solve(self.along, (steep[:, :, None] * apart).flatten(1))
        across = _solve(self.across, steep)[:, :, None] * rest[:, None, :]
        return torch.cat([along, across.flatten(1)], dim=1).to(records.dtype)

    def slopes(self, released: Tensor) -> Tensor:
        """The slopes of the noised embedding at the points, [m, d], from what was released."""
        m, d = self.points.shape
        r = self.places.shape[1]
        found = released.to(self.points)
        along = (self.along @ found[: m * r]).view(m, r) @ self.inside.T
        across = self.across @ found[m * r :].view(m, d)
        across = across - (across @ self.inside) @ self.inside.T
        return (along + across).to(released.dtype)

    def _parts(self, squares: Tensor) -> Tensor:
        """The kernel's parts at these squared distances, one a length scale, stacked first."""
        s = self.squares.to(squares).view(-1, *[1] * squares.dim())
        return torch.exp(-squares / (2 * s)) / len(self.squares)

    def _column(self, like: Tensor) -> Tensor:
        return self.squares.to(like).view(-1, *[1] * (like.dim() - 1))


def mean_kernel_slopes(points: Tensor, lengths: Sequence[float]) -> Tensor:
    """The slope of mean_jk k(y_j, y_k) at every point: what pushes generated images apart."""
    m = len(points)
    squares = torch.cdist(points, points).square()
    steep = torch.zeros_like(squares)
    for length in lengths:
        steep += torch.exp(-squares / (2 * length**2)) / (len(lengths) * length**2)
    return -2 * (steep.sum(1, keepdim=True) * points - steep @ points) / m**2


def _factor(covariance: Tensor) -> Tensor:
    """The lower Cholesky factor of the covariance and a little independent noise."""
    most = float(covariance.diagonal().max()) if covariance.numel() else 0.0
    ridge = RIDGE * most * torch.eye(len(covariance)).to(covariance)
    return torch.linalg.cholesky(covariance + ridge)


def _solve(factor: Tensor, rows: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(factor, rows.T, upper=False).T
