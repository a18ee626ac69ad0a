"""Deskewing: estimate the slant of an image from its moments, and shear it away or back.

The slant of handwriting differs between writers. Deskewed shapes vary less, and their remaining
variation is closer to linear, as a sketch of first and second moments assumes.
"""

from __future__ import annotations

import torch
from torch.nn import functional

MAX_SLANT = 0.8  # columns per row: bounds the influence of one record


def slants(images: torch.Tensor) -> torch.Tensor:
    """The slant of each image [n, c, s, s], within +-MAX_SLANT.

    The slope of the regression line through its ink, in columns to the right per row downwards.
    Each is a function of its own image; a black image has slant 0."""
    ink = images.sum(1)
    rows = torch.arange(ink.shape[1], device=ink.device) - (ink.shape[1] - 1) / 2
    columns = torch.arange(ink.shape[2], device=ink.device) - (ink.shape[2] - 1) / 2
    mass = ink.sum((1, 2)).clamp_min(1e-3)
    by_row = ink.sum(2)
    right, down = ink.sum(1) @ columns / mass, by_row @ rows / mass
    across = (ink @ columns @ rows) / mass - right * down
    along = by_row @ rows**2 / mass - down**2
    return (across / along.clamp_min(1.0)).clamp(-MAX_SLANT, MAX_SLANT)


def shear(images: torch.Tensor, slant: torch.Tensor) -> torch.Tensor:
    """The images with each row moved right by `slant` columns per row below the middle.

    Bilinear, black outside. `shear(images, -slants(images))` deskews."""
    matrix = torch.eye(2, 3, device=images.device).repeat(len(images), 1, 1)
    matrix[:, 0, 1] = -slant.to(images)
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="zeros", align_corners=False)
