"""Gaussian process noise for gradients of a kernel mean embedding, exact in finitely many numbers.

Let f = sum_i k(x_i, .) be the embedding of a sample, k a mixture of Gaussian kernels with
k(x, x) = 1. A Gaussian process with covariance k, added to f, makes all of f private at once: one
record more or less changes f by norm one in the space of k. A generator needs only the gradients of
f at its own images y_1..y_m, and there the process is a Gaussian vector whose covariance C is
known. So the release is L (sum_i L^-1 s_i + noise) with C = L L' and s_i the gradients of
k(x_i, .): rows L^-1 s_i have norm at most one, whatever x_i is, and the guard clips them to that.

C has m d rows, but in the directions in which the y do not differ it is the same small matrix for
each; `GradientNoise` factors that one and the part inside the span of the y separately.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

RIDGE = 1e-6  # independent noise on top, relative, so that near duplicates can be factored


class GradientNoise:
    """The factored covariance of a process's gradients at public points [m, d]."""

    def __init__(self, points: Tensor, scales: Sequence[float]) -> None:
        """`scales` are the length scales of the kernel's equal parts."""
        self.squares = torch.tensor([float(scale) ** 2 for scale in scales])
        self.points = points.detach().double()
        m, d = self.points.shape
        differences = self.points - self.points[0]
        self.span = torch.linalg.qr(differences[1:].T)[0]  # [d, r], spans all differences
        coordinates = differences @ self.span
        apart = coordinates[:, None, :] - coordinates[None, :, :]
        parts = self._parts(apart.square().sum(-1))
        outside = (parts / self._column(parts)).sum(0)
        r = coordinates.shape[1]
        outer = torch.einsum("lmn,mna,mnb->manb", parts / self._column(parts) ** 2, apart, apart)
        inside = outside[:, None, :, None] * torch.eye(r).to(outside)[None, :, None, :] - outer
        self.outside = _factor(outside)
        self.inside = _factor(inside.reshape(m * r, m * r))
        self.coordinates, self.width = coordinates, m * (r + d)

    def rows(self, records: Tensor) -> Tensor:
        """The whitened gradients of k(x, .) for records x [n, d]: norm at most one."""
        x = records.to(self.points) - self.points[0]
        a = x @ self.span
        rest = x - a @ self.span.T
        apart = a[:, None, :] - self.coordinates
        squares = apart.square().sum(-1) + rest.square().sum(-1, keepdim=True)
        parts = self._parts(squares)
        factors = (parts / self._column(parts)).sum(0)
        inside = _solve(self.inside, (factors[:, :, None] * apart).flatten(1))
        outside = _solve(self.outside, factors)[:, :, None] * rest[:, None, :]
        return torch.cat([inside, outside.flatten(1)], dim=1).to(records.dtype)

    def gradients(self, released: Tensor) -> Tensor:
        """The gradients of the noised embedding at the points, [m, d], from a release of rows."""
        m, d = self.points.shape
        r = self.coordinates.shape[1]
        rows = released.to(self.points)
        inside = (self.inside @ rows[: m * r]).view(m, r) @ self.span.T
        outside = self.outside @ rows[m * r :].view(m, d)
        outside = outside - (outside @ self.span) @ self.span.T
        return (inside + outside).to(released.dtype)

    def _parts(self, squares: Tensor) -> Tensor:
        """The kernel's parts at these squared distances, one per length scale, stacked first."""
        s = self.squares.to(squares).view(-1, *[1] * squares.dim())
        return torch.exp(-squares / (2 * s)) / len(self.squares)

    def _column(self, like: Tensor) -> Tensor:
        return self.squares.to(like).view(-1, *[1] * (like.dim() - 1))


def mean_kernel_gradients(points: Tensor, scales: Sequence[float]) -> Tensor:
    """The gradient of mean_jk k(y_j, y_k) at every point, which drives generated images apart."""
    m = len(points)
    squares = torch.cdist(points, points).square()
    factors = torch.zeros_like(squares)
    for scale in scales:
        factors += torch.exp(-squares / (2 * scale**2)) / (len(scales) * scale**2)
    return -2 * (factors.sum(1, keepdim=True) * points - factors @ points) / m**2


def _factor(covariance: Tensor) -> Tensor:
    """The lower Cholesky factor of the covariance and a little independent noise."""
    largest = covariance.diagonal().max() if covariance.numel() else 0.0
    ridge = RIDGE * largest * torch.eye(len(covariance), device=covariance.device)
    on_cpu = covariance.device.type == "cpu"  # where asking for success costs no wait
    matrix = covariance + ridge.to(covariance)
    return torch.linalg.cholesky_ex(matrix, check_errors=on_cpu).L


def _solve(factor: Tensor, rows: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(factor, rows.T, upper=False).T
