"""How shapes spread around their mean, from noised second moments: post-processing.

Classes of one kind of picture vary alike (strokes bend, lean and swell in every digit; every cloth
is wider or narrower), and the moment of all of them together carries a fraction of the noise that a
class's own has: it says in which directions there is anything to see, and what a class cannot tell
of itself it borrows from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

EDGE = 1.05  # an eigenvalue counts when it stands out of the noise by this factor
LEAST_OF_COMMON = 0.05  # of the common spread that a class has at least


@dataclass(frozen=True)
class NoisySymmetricMatrix:
    """A symmetric matrix, float64, whose entries off the diagonal carry noise of this deviation and
    those on it sqrt 2 times as much: noise that looks alike from every side."""

    matrix: torch.Tensor
    deviation: float

    @property
    def edge(self) -> float:
        """What the largest eigenvalue of the noise alone comes to."""
        return 2 * self.deviation * math.sqrt(len(self.matrix))

    def leading(self, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Eigenvalues beyond the edge, largest first and freed of what noise adds to them on
        average, and their vectors as columns: `most` of them at most, and never less than one."""
        values, vectors = torch.linalg.eigh(self.matrix)
        values, vectors = values.flip(0)[:most], vectors.flip(1)[:, :most]
        kept = values > EDGE * self.edge
        if not bool(kept.any()):
            return values[:1].clamp_min(self.edge / 2), vectors[:, :1]
        true = (values[kept] + (values[kept] ** 2 - self.edge**2).sqrt()) / 2
        return true, vectors[:, kept]


def borrowed(own: NoisySymmetricMatrix, expected: torch.Tensor) -> torch.Tensor:
    """Directions times deviations, one a row, of a class (or a part of one) whose moment was
    expected to be like `expected`, a matrix or the diagonal of one, but for its size.

    The class's own moment is drawn towards that, as far as its noise explains how the two differ
    (James and Stein's weight)."""
    size = len(own.matrix)
    target = torch.diag(expected) if expected.dim() == 1 else expected
    scale = float(own.matrix.trace() / target.trace().clamp_min(1e-300))
    target = max(scale, LEAST_OF_COMMON) * target
    by_noise = own.deviation**2 * size * (size + 1)
    weight = min(1.0, by_noise / max(float((own.matrix - target).square().sum()), 1e-300))
    values, turned = torch.linalg.eigh((1 - weight) * own.matrix + weight * target)
    return (turned * values.clamp_min(0).sqrt()).T


def shrunk(vector: torch.Tensor, deviation: float) -> torch.Tensor:
    """A vector whose numbers carry noise of this deviation, drawn towards zero likewise."""
    by_noise = len(vector) * deviation**2
    return vector * max(0.0, 1 - by_noise / max(float(vector.square().sum()), 1e-300))
