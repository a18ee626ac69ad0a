"""A multilayer perceptron."""

from __future__ import annotations

from torch import nn

from fedsynth.core.types import Shape


def build(shape: Shape, classes: int, _width: int) -> nn.Module:
    """Two hidden layers of 128 (118,282 parameters at 28x28x1)."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )
