"""ResNet18 for small images."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from fedsynth.core.types import Shape
from fedsynth.nn.classifiers.common import count_cells, instance_norm


class _BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            instance_norm(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            instance_norm(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), instance_norm(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output, rectified."""
        return functional.relu(self.body(x) + self.shortcut(x))


def build(shape: Shape, classes: int, _width: int) -> nn.Module:
    """ResNet18 with instance norm and a 3x3 stem (11,172,810 parameters at 28x28x1)."""
    cells = count_cells("resnet18", shape)
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], 64, 3, padding=1, bias=False),
        instance_norm(64),
        nn.ReLU(),
    ]
    for inputs, outputs in pairwise((64, 64, 128, 256, 512)):
        layers += [_BasicBlock(inputs, outputs, 1 if inputs == outputs else 2)]
        layers += [_BasicBlock(outputs, outputs, 1)]
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(512 * cells, classes))
