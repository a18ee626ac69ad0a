"""A linear layer: logistic regression."""

from __future__ import annotations

from torch import nn

from fedsynth.core.types import Shape


def build(shape: Shape, classes: int, _width: int) -> nn.Module:
    """One layer from all numbers of a record to the classes (7,850 parameters at 28x28x1)."""
    channels, height, width = shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))
