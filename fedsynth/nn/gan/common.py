"""Shared parts of the generators: label conditioning, pixel norm and keyed initialisation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import default_seed
from fedsynth.core.types import DatasetInfo, Shape


def make_generator(
    kind: Callable[[int, int, Shape], nn.Module],
    latent_size: int,
    classes: int,
    data: DatasetInfo,
    *key: object,
) -> nn.Module:
    """A generator with its default initialisation, drawn from the random key alone.

    Args:
        kind: Constructor, called with the latent size, the number of classes and the image shape.
        latent_size: Length of a latent vector.
        classes: Number of class indices.
        data: The data set whose image shape is generated.
        key: Determines the weights.
    """
    with default_seed(*key):
        return kind(latent_size, classes, data.shape)


def with_labels(rows: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Latent vectors (or other rows) with one-hot labels appended."""
    return torch.cat([rows, F.one_hot(labels, classes).to(rows)], dim=1)


def pixel_norm(x: Tensor, eps: float = 1e-8) -> Tensor:
    """The channels of each position scaled to mean square one."""
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + eps)


def require_quarters(shape: Shape) -> None:
    """Refuse images that a generator cannot draw by doubling their sides twice."""
    _, height, width = shape
    if height % 4 or width % 4:
        raise UserError(
            f"this generator doubles the sides of an image twice, so they must be multiples of "
            f"4, not {height}x{width}."
        )


def require_side(shape: Shape, generator: str) -> None:
    """Refuse images that a generator cannot draw by doubling 4x4 pixels three or four times."""
    _, height, width = shape
    if height != width or height not in (28, 32, 64):
        raise UserError(f"{generator} draws images of 28, 32 or 64 pixels, not {height}x{width}.")
