"""LeNet-5 with ReLU and max pooling."""

from __future__ import annotations

from torch import nn

from fedsynth.core.types import Shape
from fedsynth.nn.classifiers.common import count_cells, extra_padding


def build(shape: Shape, classes: int, _width: int) -> nn.Module:
    """LeNet-5 with ReLU and max pooling (61,706 parameters at 28x28x1)."""
    count_cells("lenet", shape)
    side = ((shape[1] + 2 * extra_padding(shape) - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 5, padding=extra_padding(shape)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * side * side, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
