"""The small convolutional network of Opacus's MNIST example."""

from __future__ import annotations

from torch import nn

from fedsynth.core.errors import UserError
from fedsynth.core.types import Shape

LEAST_SIDE = 16  # of an image: smaller ones leave nothing after the second pool


def build(shape: Shape, classes: int, _width: int) -> nn.Module:
    """Two convolutions with ReLU and overlapping max pools, and two linear layers: 26,010
    parameters at 28x28x1."""
    channels, height, width = shape
    if min(height, width) < LEAST_SIDE:
        raise UserError(
            f"classifier 'opacus_cnn' needs images of at least {LEAST_SIDE}x{LEAST_SIDE} pixels, "
            f"got {height}x{width}."
        )
    cells = _cells(height) * _cells(width)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * cells, 32),
        nn.ReLU(),
        nn.Linear(32, classes),
    )


def _cells(side: int) -> int:
    """The side of what the second pool leaves of an image's side."""
    first = (side - 2) // 2
    return (first - 4) // 2
