"""Shapes in numbers: an image as a point of a low-frequency space, and images of such points."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from fedsynth.nn.transforms.dct import dct, inverse_dct, low_frequency_triangle
from fedsynth.nn.transforms.deskew import MAX_SLANT, shear, slants

NORM, SLANT = 0.5, 0.5  # weights of an image's norm and slant beside those of its shape, 1
FAINTEST = 0.2  # of its class's mean norm, which no sample falls below


@dataclass(frozen=True)
class Sketch:
    """What is looked at: shapes up to so many frequencies, norms and, where shapes are straightened
    first, slants.

    `corner` keeps the corner of the block in which the two frequencies together are low: half the
    numbers, and nearly all that smooth shapes have in it."""

    frequencies: int
    upright: bool = False
    corner: bool = False

    @property
    def places(self) -> torch.Tensor:
        """Which coefficients of the block are looked at."""
        if self.corner:
            return low_frequency_triangle(self.frequencies)
        return torch.arange(self.frequencies**2)

    @property
    def width(self) -> int:
        """Numbers of a point."""
        return len(self.places) + (2 if self.upright else 1)

    @property
    def longest(self) -> float:
        """The L2 norm that no point exceeds: 1.118, or 1.187 with slants."""
        return math.sqrt(1 + NORM**2 + (SLANT * MAX_SLANT if self.upright else 0.0) ** 2)

    def points(self, pixels: torch.Tensor) -> torch.Tensor:
        """One row an image: [u, 0.5 t] and, with the slant s, 0.5 s.

        u are its low-frequency coefficients, scaled to unit length (zero for a black image), those
        of the straightened image if there is a slant, and t in [0, 1] is its norm over the largest
        possible."""
        t = pixels.flatten(1).norm(dim=1, keepdim=True) / math.sqrt(pixels[0].numel())
        rest = [NORM * t]
        if self.upright:
            s = slants(pixels)
            pixels = shear(pixels, -s)
            rest.append(SLANT * s[:, None])
        shapes = dct(pixels, self.frequencies)[:, self.places.to(pixels.device)]
        return torch.cat([functional.normalize(shapes, dim=1), *rest], dim=1)

    def energy(self, means: torch.Tensor) -> torch.Tensor:
        """What points around each of these means have left of the unit length of their shapes."""
        return 1 - means[:, : len(self.places)].square().sum(1)

    def pictured(self, points: torch.Tensor, side: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images of these points without negative pixels, intensity still to be set, and the norms
        they want."""
        shapes = torch.zeros(len(points), self.frequencies**2)
        shapes[:, self.places] = points[:, : len(self.places)].float()
        images = inverse_dct(shapes, side).clamp_min(0)
        rest = points[:, len(self.places) :].float()
        if self.upright:
            images = shear(images, (rest[:, 1] / SLANT).clamp(-1.0, 1.0))
        norms = side / NORM * rest[:, 0]
        return images, norms.clamp_min(FAINTEST * float(norms.mean().clamp_min(0)))
