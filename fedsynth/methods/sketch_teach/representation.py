"""Low-frequency representation of images: points that the sketch sums up, and images of points."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from fedsynth.nn.transforms.dct import dct, inverse_dct, low_frequency_triangle
from fedsynth.nn.transforms.deskew import MAX_SLANT, shear, slants

NORM, SLANT = 0.5, 0.5  # weights of an image's norm and slant; its shape has weight 1
MIN_RELATIVE_NORM = 0.2  # of the mean norm of its class, which no sample falls below


@dataclass(frozen=True)
class Sketch:
    """The map from an image to a point: its low frequencies, its norm and optionally its slant.

    Attributes:
        frequencies: The side of the block of DCT coefficients.
        deskew: Straighten the image first, and keep its slant as a number of the point.
        triangle: Keep the coefficients whose two frequencies are low together: half the numbers,
            and nearly all that smooth shapes have in them.
    """

    frequencies: int
    deskew: bool = False
    triangle: bool = False

    @property
    def coefficients(self) -> torch.Tensor:
        """The indices of the kept coefficients within the block."""
        if self.triangle:
            return low_frequency_triangle(self.frequencies)
        return torch.arange(self.frequencies**2)

    @property
    def width(self) -> int:
        """The length of a point."""
        return len(self.coefficients) + (2 if self.deskew else 1)

    @property
    def max_norm(self) -> float:
        """The L2 bound on points: 1.118, or 1.187 with slants."""
        return math.sqrt(1 + NORM**2 + (SLANT * MAX_SLANT if self.deskew else 0.0) ** 2)

    def points(self, pixels: torch.Tensor) -> torch.Tensor:
        """One row per image: [u, 0.5 t] and, with the slant s, 0.5 s.

        u are the kept coefficients scaled to unit length (zero for a black image), and t in [0, 1]
        is the norm of the image relative to the largest possible one."""
        t = pixels.flatten(1).norm(dim=1, keepdim=True) / math.sqrt(pixels[0].numel())
        columns = [NORM * t]
        if self.deskew:
            s = slants(pixels)
            pixels = shear(pixels, -s)
            columns.append(SLANT * s[:, None])
        shapes = dct(pixels, self.frequencies)[:, self.coefficients.to(pixels.device)]
        return torch.cat([functional.normalize(shapes, dim=1), *columns], dim=1)

    def shape_variance(self, means: torch.Tensor) -> torch.Tensor:
        """The mean squared distance of unit-length shapes from each of these class means."""
        return 1 - means[:, : len(self.coefficients)].square().sum(1)

    def render(self, points: torch.Tensor, side: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images of points, without negative pixels, and the norms to scale them to."""
        shapes = torch.zeros(len(points), self.frequencies**2)
        shapes[:, self.coefficients] = points[:, : len(self.coefficients)].float()
        images = inverse_dct(shapes, side).clamp_min(0)
        columns = points[:, len(self.coefficients) :].float()
        if self.deskew:
            images = shear(images, (columns[:, 1] / SLANT).clamp(-1.0, 1.0))
        norms = side / NORM * columns[:, 0]
        return images, norms.clamp_min(MIN_RELATIVE_NORM * float(norms.mean().clamp_min(0)))
