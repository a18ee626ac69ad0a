"""How a class's shapes spread around their mean, from noised second moments: post-processing.

A class by itself has a few directions that stand out of the noise. Classes of one kind of picture
vary alike (strokes bend, lean and swell in every digit), and their common moment carries a third of
the noise of ten: `shared_directions` lets every class borrow from it what its own cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

EDGE = 1.05  # an eigenvalue counts when it stands out of the noise by this factor
APART = 0.3  # two unit vectors with less than this between them (over sqrt 2) are one direction
LEAST_OF_COMMON = 0.05  # of the common spread that a class has at least, where it borrows


@dataclass(frozen=True)
class Noised:
    """A symmetric matrix, float64, whose entries off the diagonal carry noise of this deviation and
    those on it sqrt 2 times as much: noise that looks alike from every side."""

    matrix: torch.Tensor
    deviation: float

    @property
    def edge(self) -> float:
        """What the largest eigenvalue of the noise alone comes to."""
        return 2 * self.deviation * math.sqrt(len(self.matrix))

    def standing_out(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Eigenvalues beyond the edge, freed of what noise adds to them on average, and their
        vectors as columns."""
        values, vectors = torch.linalg.eigh(self.matrix)
        kept = values > EDGE * self.edge
        true = (values[kept] + (values[kept] ** 2 - self.edge**2).sqrt()) / 2
        return true, vectors[:, kept]


def own_directions(covariance: Noised) -> torch.Tensor:
    """Directions times deviations, one a row: only what stands out of the class's own noise."""
    values, vectors = covariance.standing_out()
    return (vectors * values.sqrt()).T


def shared_directions(covariances: Sequence[Noised], sizes: Sequence[float]) -> list[torch.Tensor]:
    """The same for every class, each drawn towards the mean over classes (weighted by `sizes`) as
    far as its own noise explains how it differs from it (James and Stein's weight)."""
    total = sum(sizes)
    pairs = list(zip(covariances, sizes, strict=True))
    mean = sum((n / total * c.matrix for c, n in pairs), torch.zeros_like(pairs[0][0].matrix))
    noise = math.sqrt(sum((n / total * c.deviation) ** 2 for c, n in pairs))
    values, vectors = Noised(mean, noise).standing_out()
    common = (vectors * values) @ vectors.T
    return [_drawn_towards(covariance, common, vectors) for covariance in covariances]


def span(vectors: torch.Tensor) -> torch.Tensor:
    """An orthonormal basis, as columns, of what these unit vectors span; a direction that two of
    them nearly share counts once."""
    basis, lengths, _ = torch.linalg.svd(vectors, full_matrices=False)
    return basis[:, lengths > APART]


def _drawn_towards(own: Noised, common: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """`own_directions`, borrowing within the span of what stands out in the class or in common."""
    _, apart = own.standing_out()
    basis = span(torch.cat([apart, vectors], dim=1))
    seen, target = basis.T @ own.matrix @ basis, basis.T @ common @ basis
    if float(target.trace()) <= 0:
        return own_directions(own)
    scale = max(float(seen.trace() / target.trace()), LEAST_OF_COMMON)
    target = scale * target
    size = len(seen)
    by_noise = own.deviation**2 * size * (size + 1)
    weight = min(1.0, by_noise / max(float((seen - target).square().sum()), 1e-300))
    values, turned = torch.linalg.eigh((1 - weight) * seen + weight * target)
    kept = values > 0
    return (basis @ turned[:, kept] * values[kept].sqrt()).T
