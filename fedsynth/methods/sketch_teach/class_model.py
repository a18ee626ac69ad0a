"""Class models: Gaussian mixtures over points, estimated from a few noised answers.

All of it except the answers themselves is post-processing. `Ask` sends a query to the records and
returns the noised sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fedsynth.methods.sketch_teach.queries import (
    CELL_COUNT,
    CELLS,
    COMMON,
    COUNT,
    MEANS,
    SPREADS,
    Query,
    nearest,
)
from fedsynth.methods.sketch_teach.representation import NORM, Sketch
from fedsynth.methods.sketch_teach.shrinkage import (
    NoisySymmetricMatrix,
    james_stein,
    shrink_covariance,
)

MIN_CLASS_SHARE, MIN_CELL_SHARE = 0.1, 0.02  # lower bounds of sizes, relative to equal sizes
MIN_CLASS_NORM = 0.05 * NORM  # of the mean image of a class
SQUARED_RADIUS_FACTOR = 1.5  # squared clipping radius over the mean squared distance from the mean
MIN_SHAPE_VARIANCE, NORM_AND_SLANT_VARIANCE = 0.02, 0.02
MAX_DIRECTIONS = 150
KMEANS_SAMPLES, KMEANS_ITERATIONS = 4000, 15

Ask = Callable[[Query], torch.Tensor]
"""Returns the noised answer to a query."""


@dataclass(frozen=True)
class ClassModel:
    """A mixture of Gaussians over the points of one class, one per cell.

    Attributes:
        sketch: The map between images and points.
        weights: [cells].
        means: [cells, width].
        factors: [cells, directions, width]; F.T @ F is the covariance of a cell.
    """

    sketch: Sketch
    weights: torch.Tensor
    means: torch.Tensor
    factors: torch.Tensor

    def sample(
        self, n: int, side: int, generator: torch.Generator, temperature: float = 1.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw `n` images without negative pixels, and the norms that they should be scaled to."""
        cell = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        z = torch.randn(n, self.factors.shape[1], generator=generator) * temperature
        points = self.means[cell]
        for number, factor in enumerate(self.factors):
            in_cell = cell == number
            points[in_cell] += z[in_cell] @ factor
        return self.sketch.render(points, side)


class ClassModelEstimator:
    """Asks the queries about some classes one after another, and turns the answers into models."""

    def __init__(
        self,
        ask: Ask,
        sketch: Sketch,
        classes: Sequence[int],
        *,
        multipliers: Sequence[float],
        records: int,
        noise_scale: float = 1.0,
    ) -> None:
        """
        Args:
            ask: Returns the noised answer to a query.
            sketch: The map from images to points.
            classes: The classes to estimate.
            multipliers: The noise multiplier of each query.
            records: The public number of records of all these classes together.
            noise_scale: The noise of the answers relative to these multipliers.
        """
        self._ask, self._sketch, self._classes = ask, sketch, tuple(classes)
        self._noise, self._records = [noise_scale * m for m in multipliers], records
        self._public: dict[str, torch.Tensor] = {}

    def estimate(self, cells: int, generator: torch.Generator) -> dict[int, ClassModel]:
        """A model of each class with this number of cells."""
        counts, means, variances = self._means()
        overall = float((counts * variances).sum() / counts.sum())
        common, basis = self._common(SQUARED_RADIUS_FACTOR * overall * torch.ones_like(variances))
        explained = min(1.0, float(common.sum()) / overall)
        factors = self._factors(SQUARED_RADIUS_FACTOR * explained * variances, counts, common)
        if cells == 1:
            centre = torch.zeros(1, len(common), dtype=torch.float64)
            mixtures = [(torch.ones(1), centre, factor[None]) for factor in factors]
        else:
            mixtures = self._cells(factors, counts, cells, generator)
        return {
            label: ClassModel(
                self._sketch,
                weights.float(),
                (mean + shift @ basis.T).float(),
                (factor @ basis.T).float(),
            )
            for label, mean, (weights, shift, factor) in zip(
                self._classes, means, mixtures, strict=True
            )
        }

    def _send(self, kind: str) -> tuple[Query, torch.Tensor]:
        """A query of this kind and its noised answer."""
        public = {name: value.float() for name, value in self._public.items()}
        query = Query(kind, self._sketch, self._classes, public)
        return query, self._ask(query).double().cpu()

    def _means(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The number of records, mean point and mean squared distance from it of each class."""
        query, sums = self._send(MEANS)
        noise = query.bound * self._noise[query.number]
        counts = self._counts(sums[:, -1] / COUNT, noise / COUNT)
        means = sums[:, :-1] / counts[:, None]
        shapes = len(self._sketch.coefficients)
        for column in means[:, shapes:].T:  # norms and slants differ little between classes
            pooled = (counts * column).sum() / counts.sum()
            column[:] = pooled + james_stein(column - pooled, float((noise / counts).mean()))
        means[:, shapes] = means[:, shapes].clamp(MIN_CLASS_NORM, NORM)
        noise_variance = (noise / counts) ** 2
        variances = self._sketch.shape_variance(means) + shapes * noise_variance
        self._public["means"] = means
        return counts, means, variances.clamp(MIN_SHAPE_VARIANCE, 1.0) + NORM_AND_SLANT_VARIANCE

    def _counts(self, noised: torch.Tensor, deviation: float) -> torch.Tensor:
        """The number of records of each class: their public total, and differences from the noised
        counts as far as noise does not explain them."""
        equal = self._records / len(self._classes)
        differences = james_stein(noised - noised.mean(), deviation)
        return (equal + differences).clamp_min(MIN_CLASS_SHARE * equal)

    def _common(self, squared_radii: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The pooled variances that exceed the noise, and their directions as columns."""
        self._public["basis"] = torch.eye(self._sketch.width, dtype=torch.float64)
        (pooled,) = self._moments(COMMON, squared_radii[:1], torch.tensor([self._records]))
        values, basis = pooled.leading(MAX_DIRECTIONS)
        self._public["basis"] = basis
        return values, basis

    def _factors(
        self, squared_radii: torch.Tensor, counts: torch.Tensor, common: torch.Tensor
    ) -> list[torch.Tensor]:
        """The covariance factor of each class, in the basis."""
        moments = self._moments(SPREADS, squared_radii, counts)
        return [shrink_covariance(moment, common) for moment in moments]

    def _moments(
        self, kind: str, squared_radii: torch.Tensor, counts: torch.Tensor
    ) -> list[NoisySymmetricMatrix]:
        """Second moments around class means, of points clipped to these radii."""
        self._public["radii"] = squared_radii.sqrt().expand(len(self._classes))[:, None]
        query, matrices = self._send(kind)
        noise = self._noise[query.number] / math.sqrt(2)
        units = (squared_radii / counts).tolist()
        return [
            NoisySymmetricMatrix(unit * symmetric(matrix), unit * noise)
            for unit, matrix in zip(units, matrices, strict=True)
        ]

    def _cells(
        self,
        factors: Sequence[torch.Tensor],
        counts: torch.Tensor,
        cells: int,
        generator: torch.Generator,
    ) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """The weights, means and covariance factors of each class's cells, in the basis."""
        clusters = [kmeans_cells(factor, cells, generator) for factor in factors]
        self._public["centres"] = torch.stack([centres for centres, _ in clusters])
        expected = torch.stack([moments for _, moments in clusters])
        squared_radii = SQUARED_RADIUS_FACTOR * expected.diagonal(dim1=-2, dim2=-1).sum(-1)
        self._public["radii"] = squared_radii.sqrt()
        query, matrices = self._send(CELLS)
        noise = query.bound * self._noise[query.number] / math.sqrt(2)
        mixtures = []
        for class_index, centres in enumerate(self._public["centres"]):
            min_size = MIN_CELL_SHARE * float(counts[class_index]) / cells
            estimates = [
                estimate_cell(symmetric(matrix), float(squared_radius), noise, target, min_size)
                for matrix, squared_radius, target in zip(
                    matrices[class_index * cells : (class_index + 1) * cells],
                    squared_radii[class_index],
                    expected[class_index],
                    strict=True,
                )
            ]
            sizes = torch.tensor([size for size, _, _ in estimates]).double()
            shifts = torch.stack([shift for _, shift, _ in estimates])
            mixtures.append(
                (sizes, centres + shifts, torch.stack([factor for _, _, factor in estimates]))
            )
        return mixtures


def kmeans_cells(
    factor: torch.Tensor, cells: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cluster samples of a Gaussian with this covariance factor by k-means.

    Returns:
        The centres [cells, r] and the covariances [cells, r, r] of the clusters.
    """
    sample = torch.randn(KMEANS_SAMPLES, len(factor), generator=generator, dtype=torch.float64)
    sample = sample @ factor
    centres = sample[:cells]
    for _ in range(KMEANS_ITERATIONS):
        cell, _ = nearest(sample, centres)
        centres = torch.stack(
            [
                sample[cell == number].mean(0) if bool((cell == number).any()) else centre
                for number, centre in enumerate(centres)
            ]
        )
    cell, offsets = nearest(sample, centres)
    clusters = [offsets[cell == number] for number in range(cells)]
    return centres, torch.stack([c.T @ c / max(len(c), 1) for c in clusters])


def estimate_cell(
    matrix: torch.Tensor,
    squared_radius: float,
    noise: float,
    expected: torch.Tensor,
    min_size: float,
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The size, the mean relative to the centre and the covariance factor of a cell.

    Args:
        matrix: The noised second moment of [offset from the centre over the radius, 0.5].
        squared_radius: The squared clipping radius.
        noise: The standard deviation of the noise off the diagonal.
        expected: The expected covariance, towards which the estimate is shrunk.
        min_size: The lower bound on the size.
    """
    size = max(float(matrix[-1, -1]) / CELL_COUNT**2, min_size)
    radius = math.sqrt(squared_radius)
    shift = matrix[:-1, -1] * radius / CELL_COUNT / size
    shift = james_stein(shift, noise * radius / CELL_COUNT / size)
    moment = matrix[:-1, :-1] * squared_radius / size - torch.outer(shift, shift)
    own = NoisySymmetricMatrix(moment, noise * squared_radius / size)
    return size, shift, shrink_covariance(own, expected)


def symmetric(matrix: torch.Tensor) -> torch.Tensor:
    """The mean of a matrix and its transpose."""
    return (matrix + matrix.T) / 2
