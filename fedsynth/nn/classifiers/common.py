"""Shared parts of the classifiers: the normalisation layer and the input sizes they accept."""

from __future__ import annotations

from torch import nn

from fedsynth.core.errors import UserError
from fedsynth.core.types import Shape


def instance_norm(channels: int) -> nn.GroupNorm:
    """One group per channel: statistics of a single image and channel, affine, eps 1e-5."""
    return nn.GroupNorm(channels, channels)


def count_cells(name: str, shape: Shape) -> int:
    """The number of 32x32 cells that tile the input; 28x28 is one, as padding makes it 32x32.

    Raises:
        UserError: The input is not square, or its side is neither 28 nor a multiple of 32.
    """
    _, height, width = shape
    if height == width == 28:
        return 1
    if height == width and height % 32 == 0:
        return (height // 32) ** 2
    raise UserError(
        f"classifier {name!r} needs square images of side 28 or a multiple of 32, "
        f"got {height}x{width}. Allowed for other sizes: mlp, linear."
    )


def extra_padding(shape: Shape) -> int:
    """Additional padding of a first convolution, which turns a side of 28 into 32."""
    return 2 if shape[1] == 28 else 0
