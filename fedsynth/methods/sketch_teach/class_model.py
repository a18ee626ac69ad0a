"""Portraits of classes: Gaussians over the points of a sketch, from a few noised answers.

All of it but the answers themselves is post-processing: whoever has them could do it. `Ask` puts a
question to whoever holds records and brings back the noised sum.
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
from fedsynth.methods.sketch_teach.shrinkage import NoisySymmetricMatrix, borrowed, shrunk

SMALLEST, SMALLEST_CELL = 0.1, 0.02  # of an even share: what no class or cell is taken below
FAINTEST_CLASS = 0.05 * NORM  # no class is darker than that on average
REACH = 1.5  # squared radius over the mean squared distance from the mean
LEAST_ENERGY, BESIDE_SHAPES = 0.02, 0.02  # squared: of shapes at least, and of norms and slants
MOST_DIRECTIONS = 150
DREAMT, LLOYD = 4000, 15  # points of a class that its cells are laid around, and steps of k-means

Ask = Callable[[Query], torch.Tensor]
"""From a question to the answer."""


@dataclass(frozen=True)
class ClassModel:
    """What is known of one class: a mixture of Gaussians over points."""

    sketch: Sketch
    weights: torch.Tensor  # [cells]
    means: torch.Tensor  # [cells, width]
    spreads: torch.Tensor  # [cells, directions, width]: directions times deviations

    def sample(
        self, n: int, side: int, generator: torch.Generator, temperature: float = 1.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Images without negative pixels, intensity still to be set, and the norms they want."""
        cell = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        z = torch.randn(n, self.spreads.shape[1], generator=generator) * temperature
        points = self.means[cell]
        for number, spread in enumerate(self.spreads):
            mine = cell == number
            points[mine] += z[mine] @ spread
        return self.sketch.pictured(points, side)


class ClassModelEstimator:
    """The questions to some classes, one after another, and what their answers say."""

    def __init__(
        self,
        ask: Ask,
        sketch: Sketch,
        classes: Sequence[int],
        *,
        multipliers: Sequence[float],
        records: int,
        times: float = 1.0,
    ) -> None:
        """Answers carry noise of these multipliers, `times` over; `records` are those of all
        classes together."""
        self._ask, self._sketch, self._names = ask, sketch, tuple(classes)
        self._noise, self._records = [times * m for m in multipliers], records
        self._known: dict[str, torch.Tensor] = {}

    def portraits(self, cells: int, generator: torch.Generator) -> dict[int, ClassModel]:
        """Every class, in one part or in `cells`."""
        counts, means, energies = self._means()
        overall = float((counts * energies).sum() / counts.sum())
        common, basis = self._common(REACH * overall * torch.ones_like(energies))
        kept = min(1.0, float(common.sum()) / overall)
        spreads = self._spreads(REACH * kept * energies, counts, common)
        if cells == 1:
            centre = torch.zeros(1, len(common), dtype=torch.float64)
            inside = [(torch.ones(1), centre, spread[None]) for spread in spreads]
        else:
            inside = self._cells(spreads, counts, cells, generator)
        return {
            name: ClassModel(
                self._sketch,
                weights.float(),
                (mean + shift @ basis.T).float(),
                (spread @ basis.T).float(),
            )
            for name, mean, (weights, shift, spread) in zip(self._names, means, inside, strict=True)
        }

    def _put(self, kind: str) -> tuple[Query, torch.Tensor]:
        known = {name: value.float() for name, value in self._known.items()}
        question = Query(kind, self._sketch, self._names, known)
        return question, self._ask(question).double().cpu()

    def _means(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Records, mean point, and mean squared distance from it, of each class."""
        question, sums = self._put(MEANS)
        noise = question.bound * self._noise[question.number]
        counts = self._counts(sums[:, -1] / COUNT, noise / COUNT)
        means = sums[:, :-1] / counts[:, None]
        shapes = len(self._sketch.places)
        for beside in means[:, shapes:].T:  # norms and slants: classes have much in common
            usual = (counts * beside).sum() / counts.sum()
            beside[:] = usual + shrunk(beside - usual, float((noise / counts).mean()))
        means[:, shapes] = means[:, shapes].clamp(FAINTEST_CLASS, NORM)
        by_noise = (noise / counts) ** 2
        energies = self._sketch.energy(means) + shapes * by_noise
        self._known["means"] = means
        return counts, means, energies.clamp(LEAST_ENERGY, 1.0) + BESIDE_SHAPES

    def _counts(self, noised: torch.Tensor, deviation: float) -> torch.Tensor:
        """Records of each class. How many they are together is public; how they differ is taken
        from the noised counts as far as noise does not explain it."""
        even = self._records / len(self._names)
        differing = shrunk(noised - noised.mean(), deviation)
        return (even + differing).clamp_min(SMALLEST * even)

    def _common(self, squared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Variances and directions, as columns, that stand out in all classes together."""
        self._known["basis"] = torch.eye(self._sketch.width, dtype=torch.float64)
        (found,) = self._moments(COMMON, squared[:1], torch.tensor([self._records]))
        values, basis = found.leading(MOST_DIRECTIONS)
        self._known["basis"] = basis
        return values, basis

    def _spreads(
        self, squared: torch.Tensor, counts: torch.Tensor, common: torch.Tensor
    ) -> list[torch.Tensor]:
        """Directions times deviations of each class, in the basis."""
        return [borrowed(own, common) for own in self._moments(SPREADS, squared, counts)]

    def _moments(
        self, kind: str, squared: torch.Tensor, counts: torch.Tensor
    ) -> list[NoisySymmetricMatrix]:
        """Second moments around the means of classes, clipped to these squared radii."""
        self._known["radii"] = squared.sqrt().expand(len(self._names))[:, None]
        question, matrices = self._put(kind)
        noise = self._noise[question.number] / math.sqrt(2)
        units = (squared / counts).tolist()
        return [
            NoisySymmetricMatrix(unit * symmetric(matrix), unit * noise)
            for unit, matrix in zip(units, matrices, strict=True)
        ]

    def _cells(
        self,
        spreads: Sequence[torch.Tensor],
        counts: torch.Tensor,
        cells: int,
        generator: torch.Generator,
    ) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Weights, means and spreads of the parts of each class, in the basis."""
        laid = [laid_out(spread, cells, generator) for spread in spreads]
        self._known["centres"] = torch.stack([centres for centres, _ in laid])
        expected = torch.stack([moments for _, moments in laid])
        squared = REACH * expected.diagonal(dim1=-2, dim2=-1).sum(-1)
        self._known["radii"] = squared.sqrt()
        question, matrices = self._put(CELLS)
        noise = question.bound * self._noise[question.number] / math.sqrt(2)
        found = []
        for place, centres in enumerate(self._known["centres"]):
            least = SMALLEST_CELL * float(counts[place]) / cells
            parts = [
                cell_of(symmetric(matrix), float(unit), noise, target, least)
                for matrix, unit, target in zip(
                    matrices[place * cells : (place + 1) * cells],
                    squared[place],
                    expected[place],
                    strict=True,
                )
            ]
            sizes = torch.tensor([size for size, _, _ in parts]).double()
            shifts = torch.stack([shift for _, shift, _ in parts])
            found.append((sizes, centres + shifts, torch.stack([spread for _, _, spread in parts])))
        return found


def laid_out(
    spread: torch.Tensor, cells: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Centres [cells, r] of a Gaussian with this spread, by k-means on a sample of it, and the
    covariances [cells, r, r] of the parts around them."""
    sample = torch.randn(DREAMT, len(spread), generator=generator, dtype=torch.float64) @ spread
    centres = sample[:cells]
    for _ in range(LLOYD):
        cell, _ = nearest(sample, centres)
        centres = torch.stack(
            [
                sample[cell == number].mean(0) if bool((cell == number).any()) else centre
                for number, centre in enumerate(centres)
            ]
        )
    cell, apart = nearest(sample, centres)
    parts = [apart[cell == number] for number in range(cells)]
    return centres, torch.stack([part.T @ part / max(len(part), 1) for part in parts])


def cell_of(
    matrix: torch.Tensor, squared: float, noise: float, expected: torch.Tensor, least: float
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Size, shift from its centre and spread of a cell, from the noised moment of its rows
    [way from the centre in units of the radius, 0.5], and from what was expected of it."""
    size = max(float(matrix[-1, -1]) / CELL_COUNT**2, least)
    radius = math.sqrt(squared)
    shift = matrix[:-1, -1] * radius / CELL_COUNT / size
    shift = shrunk(shift, noise * radius / CELL_COUNT / size)
    moment = matrix[:-1, :-1] * squared / size - torch.outer(shift, shift)
    return size, shift, borrowed(NoisySymmetricMatrix(moment, noise * squared / size), expected)


def symmetric(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix and its transpose, averaged."""
    return (matrix + matrix.T) / 2
