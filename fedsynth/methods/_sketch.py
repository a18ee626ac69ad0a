"""The sketch: noised moments of each class in a low-frequency basis, and images drawn from them.

`contribution` is what one record adds to its class's sum, never longer than `BOUND`; everything
else here works on the noised sums and is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fedsynth.methods._directions import Noised
from fedsynth.models.dct import below_the_diagonal, coefficients, images_of
from fedsynth.models.slant import MOST, sheared, slants

MEAN, COUNT, NORM, SLANT = 0.5, 0.05, 0.1, 0.1  # weights of parts of a contribution; the moment's 1


@dataclass(frozen=True)
class Sketch:
    """What a class is asked for: moments of its shapes up to so many frequencies, of its norms,
    and, where shapes are straightened first, of its slants.

    `corner` keeps the corner of the block in which the two frequencies together are low: with half
    the numbers the noise has a narrower spectrum, and more directions stand out of it."""

    frequencies: int
    upright: bool = False
    corner: bool = False

    @property
    def places(self) -> torch.Tensor:
        """Which coefficients of the block are looked at."""
        if self.corner:
            return below_the_diagonal(self.frequencies)
        return torch.arange(self.frequencies**2)

    @property
    def width(self) -> int:
        """Numbers in one class's sketch."""
        size = len(self.places)
        return size + size * (size + 1) // 2 + (5 if self.upright else 3)

    @property
    def bound(self) -> float:
        """The L2 norm that no record's contribution exceeds: 1.128, or 1.133 with slants."""
        slant = SLANT**2 * (MOST**2 + MOST**4) if self.upright else 0.0
        return math.sqrt(MEAN**2 + 1 + COUNT**2 + 2 * NORM**2 + slant)

    def contribution(self, pixels: torch.Tensor) -> torch.Tensor:
        """One row a record: [0.5 u, vech(u u^T), 0.05, 0.1 t, 0.1 t^2] and, with the slant s,
        [0.1 s, 0.1 s^2].

        u are its low-frequency coefficients, scaled to unit length (zero for a black image), those
        of the straightened image if there is a slant, and t in [0, 1] is its norm over the largest
        possible. Off-diagonal products carry sqrt 2, so that the second part is as long as
        |u|^2 <= 1, and the whole at most `bound`."""
        t = pixels.flatten(1).norm(dim=1, keepdim=True) / math.sqrt(pixels[0].numel())
        rest = [torch.full_like(t, COUNT), NORM * t, NORM * t**2]
        if self.upright:
            s = slants(pixels)
            pixels = sheared(pixels, -s)
            rest += [SLANT * s[:, None], SLANT * s[:, None] ** 2]
        shapes = coefficients(pixels, self.frequencies)[:, self.places.to(pixels.device)]
        unit = torch.nn.functional.normalize(shapes, dim=1)
        return torch.cat([MEAN * unit, _products(unit), *rest], dim=1)

    def moments(self, row: torch.Tensor, *, side: int, noise: float, at_least: float) -> Moments:
        """The class behind one noised sum whose every entry carries N(0, noise^2). The count is
        noised too, and taken for at least `at_least` records."""
        size = len(self.places)
        parts = [size, size * (size + 1) // 2, 1, 1, 1, *([1, 1] if self.upright else [])]
        first, products, count, *rest = row.double().cpu().split(parts)
        n = max(float(count) / COUNT, at_least)
        rows, columns = torch.triu_indices(size, size)
        weights = torch.where(rows == columns, 1.0, math.sqrt(2)).double()
        moment = torch.zeros(size, size, dtype=torch.float64)
        moment[rows, columns] = products / weights / n
        moment = torch.triu(moment) + torch.triu(moment, 1).T
        mean = first / MEAN / n
        around = Noised(moment - torch.outer(mean, mean), noise / (n * math.sqrt(2)))
        t = min(max(float(rest[0]) / NORM / n, 0.02), 1.0)
        norm = Spread.of(t, float(rest[1]) / NORM / n, most=t / 2)
        lean = Spread(0.0, 0.0)
        if self.upright:
            s = min(max(float(rest[2]) / SLANT / n, -MOST), MOST)
            lean = Spread.of(s, float(rest[3]) / SLANT / n, most=MOST / 2)
        return Moments(n, mean, around, norm.times(side), lean)

    def model(self, moments: Moments, directions: torch.Tensor) -> ClassModel:
        """What can be drawn from: the class with these directions of its spread."""
        spread = torch.zeros(len(directions), self.frequencies**2)
        spread[:, self.places] = directions.float()
        centre = torch.zeros(self.frequencies**2)
        centre[self.places] = moments.mean.float()
        return ClassModel(centre, spread, moments.norm, moments.slant)


def _products(unit: torch.Tensor) -> torch.Tensor:
    """vech(u u^T) of each row, off-diagonals times sqrt 2, in the order of `triu_indices`."""
    n, size = unit.shape
    products = unit.new_empty(n, size * (size + 1) // 2)
    scaled, start = unit * math.sqrt(2), 0
    for i in range(size):
        torch.mul(unit[:, i : i + 1], scaled[:, i:], out=products[:, start : start + size - i])
        products[:, start] = unit[:, i] ** 2
        start += size - i
    return products


@dataclass(frozen=True)
class Spread:
    """Mean and deviation of one number over a class."""

    mean: float
    deviation: float

    @staticmethod
    def of(mean: float, mean_square: float, *, most: float) -> Spread:
        """From noised moments; no deviation is taken for larger than `most`."""
        return Spread(mean, math.sqrt(min(max(mean_square - mean**2, 0.0), most**2)))

    def times(self, factor: float) -> Spread:
        """The same of a multiple of the number."""
        return Spread(factor * self.mean, factor * self.deviation)

    def draw(self, n: int, generator: torch.Generator) -> torch.Tensor:
        """Normal values."""
        return self.mean + self.deviation * torch.randn(n, generator=generator)


@dataclass(frozen=True)
class Moments:
    """What a noised sum says of one class."""

    records: float
    mean: torch.Tensor  # of coefficients of unit length, those of `Sketch.places`
    covariance: Noised  # of the same
    norm: Spread
    slant: Spread


@dataclass(frozen=True)
class ClassModel:
    """What is known of one class: a Gaussian over shapes, the spread of norms and of slants."""

    mean: torch.Tensor  # [frequencies^2], of coefficients of unit length
    spread: torch.Tensor  # [components, frequencies^2]: directions times deviations
    norm: Spread  # L2 norm of its images
    slant: Spread

    def sample(
        self, n: int, side: int, generator: torch.Generator, temperature: float = 1.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Images without negative pixels, intensity still to be set, and the norms they want."""
        z = torch.randn(n, len(self.spread), generator=generator) * temperature
        images = images_of(self.mean + z @ self.spread, side).clamp_min(0)
        if self.slant != Spread(0.0, 0.0):
            images = sheared(images, self.slant.draw(n, generator).clamp(-1.0, 1.0))
        return images, self.norm.draw(n, generator).clamp_min(0.2 * self.norm.mean)
