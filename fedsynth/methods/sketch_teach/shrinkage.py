"""Covariances from noised second moments: eigenvalues above the noise, shrinkage towards a target.

Each class covariance is shrunk towards the pooled covariance of all classes by James and Stein's
weight: the pooled moment carries a fraction of the noise of one class's own moment. All of it is
post-processing of noised values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

EDGE_FACTOR = 1.05  # an eigenvalue counts if it exceeds the edge of the noise by this factor
MIN_COMMON_SCALE = 0.05  # of the pooled covariance, which each class has at least


@dataclass(frozen=True)
class NoisySymmetricMatrix:
    """A symmetric float64 matrix with rotation-invariant Gaussian noise.

    Entries off the diagonal carry noise of this standard deviation, and those on it sqrt(2) times
    as much."""

    matrix: torch.Tensor
    deviation: float

    @property
    def edge(self) -> float:
        """The expected largest eigenvalue of the noise alone."""
        return 2 * self.deviation * math.sqrt(len(self.matrix))

    def leading(self, at_most: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The eigenvalues beyond the edge and their eigenvectors as columns, largest first.

        The bias that noise adds to them is removed. There are at most `at_most` of them and at
        least one."""
        values, vectors = torch.linalg.eigh(self.matrix)
        values, vectors = values.flip(0)[:at_most], vectors.flip(1)[:, :at_most]
        kept = values > EDGE_FACTOR * self.edge
        if not bool(kept.any()):
            return values[:1].clamp_min(self.edge / 2), vectors[:, :1]
        unbiased = (values[kept] + (values[kept] ** 2 - self.edge**2).sqrt()) / 2
        return unbiased, vectors[:, kept]


def shrink_covariance(own: NoisySymmetricMatrix, expected: torch.Tensor) -> torch.Tensor:
    """Shrink a noised covariance towards an expected one, as far as noise explains the difference.

    Args:
        own: The noised covariance of a class or a cell.
        expected: The target up to its scale: a matrix, or the diagonal of one.

    Returns:
        A factor F of the result, such that F.T @ F is the covariance: one row per principal
        direction, whose length is the standard deviation along it.
    """
    size = len(own.matrix)
    target = torch.diag(expected) if expected.dim() == 1 else expected
    scale = float(own.matrix.trace() / target.trace().clamp_min(1e-300))
    target = max(scale, MIN_COMMON_SCALE) * target
    noise_energy = own.deviation**2 * size * (size + 1)
    weight = min(1.0, noise_energy / max(float((own.matrix - target).square().sum()), 1e-300))
    values, vectors = torch.linalg.eigh((1 - weight) * own.matrix + weight * target)
    return (vectors * values.clamp_min(0).sqrt()).T


def james_stein(vector: torch.Tensor, deviation: float) -> torch.Tensor:
    """Shrink a vector, whose numbers carry noise of this deviation, towards zero."""
    noise_energy = len(vector) * deviation**2
    return vector * max(0.0, 1 - noise_energy / max(float(vector.square().sum()), 1e-300))
