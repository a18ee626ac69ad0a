"""The sketch: noised moments of each class in a low-frequency basis, and images drawn from them.

`contribution` is what one record adds to its class's sum, never longer than `BOUND`; everything
else here works on the noised sums and is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fedsynth.models.dct import coefficients, images_of

MEAN, COUNT, NORM = 0.5, 0.05, 0.1  # weights of the parts of a contribution; the moment has 1
BOUND = math.sqrt(MEAN**2 + 1 + COUNT**2 + 2 * NORM**2)
EDGE = 1.05  # an eigenvalue counts when it stands out of the noise by this factor


def sketch_width(frequencies: int) -> int:
    """Numbers in one class's sketch."""
    size = frequencies**2
    return size + size * (size + 1) // 2 + 3


def contribution(pixels: torch.Tensor, frequencies: int) -> torch.Tensor:
    """One row a record: [0.5 u, vech(u u^T), 0.05, 0.1 t, 0.1 t^2].

    u are its low-frequency coefficients, scaled to unit length (zero for a black image), and t in
    [0, 1] is its norm over the largest possible. Off-diagonal products carry sqrt 2, so that the
    second part is as long as |u|^2 <= 1, and the whole at most sqrt(.25 + 1 + .0025 + .02)."""
    low = coefficients(pixels, frequencies)
    unit = torch.nn.functional.normalize(low, dim=1)
    t = pixels.flatten(1).norm(dim=1, keepdim=True) / math.sqrt(pixels[0].numel())
    rest = [torch.full_like(t, COUNT), NORM * t, NORM * t**2]
    return torch.cat([MEAN * unit, _products(unit), *rest], dim=1)


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
class ClassModel:
    """What is known of one class: a Gaussian over shapes and the spread of their norms."""

    mean: torch.Tensor  # [frequencies^2], of coefficients of unit length
    spread: torch.Tensor  # [components, frequencies^2]: directions times deviations
    norm: float  # mean L2 norm of its images
    norm_deviation: float

    def sample(
        self, n: int, side: int, generator: torch.Generator, temperature: float = 1.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Images without negative pixels, intensity still to be set, and the norms they want."""
        z = torch.randn(n, len(self.spread), generator=generator) * temperature
        images = images_of(self.mean + z @ self.spread, side).clamp_min(0)
        norms = self.norm + self.norm_deviation * torch.randn(n, generator=generator)
        return images, norms.clamp_min(0.2 * self.norm)


def decode(
    row: torch.Tensor, frequencies: int, *, side: int, noise: float, at_least: float
) -> ClassModel:
    """The class behind one noised sum whose every entry carries N(0, noise^2).

    The count is noised too, and taken for at least `at_least` records. The noise in the second
    moment has the spectrum of a random symmetric matrix: eigenvalues within its edge are dropped,
    the others freed of what noise adds to them on average.
    """
    size = frequencies**2
    row = row.double().cpu()
    first, products, count, once, twice = row.split([size, size * (size + 1) // 2, 1, 1, 1])
    n = max(float(count) / COUNT, at_least)
    rows, columns = torch.triu_indices(size, size)
    weights = torch.where(rows == columns, 1.0, math.sqrt(2)).double()
    moment = torch.zeros(size, size, dtype=row.dtype)
    moment[rows, columns] = products / weights / n
    moment = torch.triu(moment) + torch.triu(moment, 1).T
    mean = first / MEAN / n
    edge = 2 * noise / (n * math.sqrt(2)) * frequencies
    values, vectors = torch.linalg.eigh(moment - torch.outer(mean, mean))
    kept = values > EDGE * edge
    true = (values[kept] + (values[kept] ** 2 - edge**2).sqrt()) / 2
    spread = (vectors[:, kept] * true.sqrt()).T
    t = min(max(float(once) / NORM / n, 0.02), 1.0)
    variance = min(max(float(twice) / NORM / n - t * t, 0.0), t * t / 4)
    return ClassModel(mean.float(), spread.float(), t * side, math.sqrt(variance) * side)
