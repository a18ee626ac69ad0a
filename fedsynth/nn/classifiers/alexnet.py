"""A small AlexNet: five convolutions without normalisation or dropout."""

from __future__ import annotations

from torch import nn

from fedsynth.core.types import Shape
from fedsynth.nn.classifiers.common import count_cells, extra_padding


def build(shape: Shape, classes: int, _width: int) -> nn.Module:
    """Five convolutions without norm or dropout (1,865,802 parameters at 28x28x1)."""
    cells = count_cells("alexnet", shape)
    return nn.Sequential(
        nn.Conv2d(shape[0], 128, 5, padding=2 + extra_padding(shape)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(128, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(192, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 192, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(192, 192, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(192 * 16 * cells, classes),
    )
