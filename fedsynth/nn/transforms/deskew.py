"""How far a picture leans: read off its own moments, taken out, and put back.

Handwriting leans differently from hand to hand. A straightened shape varies less, and what is left
of the variation is nearer to a linear one, which is all that a sketch of two moments can hold.
"""

from __future__ import annotations

import torch
from torch.nn import functional

MOST = 0.8  # columns a row: nothing leans further, so that one record cannot say much


def slants(images: torch.Tensor) -> torch.Tensor:
    """The slant of each image [n, c, s, s]: the slope of the line through its ink, in columns to
    the right a row down, within MOST. Each is a function of its own image; a black one has 0."""
    ink = images.sum(1)
    rows = torch.arange(ink.shape[1], device=ink.device) - (ink.shape[1] - 1) / 2
    columns = torch.arange(ink.shape[2], device=ink.device) - (ink.shape[2] - 1) / 2
    mass = ink.sum((1, 2)).clamp_min(1e-3)
    by_row = ink.sum(2)
    right, down = ink.sum(1) @ columns / mass, by_row @ rows / mass
    across = (ink @ columns @ rows) / mass - right * down
    along = by_row @ rows**2 / mass - down**2
    return (across / along.clamp_min(1.0)).clamp(-MOST, MOST)


def sheared(images: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Images whose rows are moved right by `by` columns for every row below the middle; bilinear,
    black around. `sheared(images, -slants(images))` stand upright."""
    matrix = torch.eye(2, 3, device=images.device).repeat(len(images), 1, 1)
    matrix[:, 0, 1] = -by.to(images)
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="zeros", align_corners=False)
