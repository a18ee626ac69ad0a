"""Generators and discriminators of linear layers, as the early private GANs have them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedsynth.nn.gan.conv_generators import Shape, with_labels


class MLPGenerator(nn.Module):
    """Codes and labels (positions) in, pixels in [0, 1] out: [n, c, h, w]. With `norm`, batch norm
    over what is drawn at once in training and running statistics in evaluation; no record passes
    through it. With one class, labels are not looked at."""

    def __init__(
        self, code: int, classes: int, shape: Shape, hidden: Sequence[int], *, norm: bool = False
    ) -> None:
        super().__init__()
        self.classes, self.shape = classes, shape
        layers: list[nn.Module] = []
        width = code + (classes if classes > 1 else 0)
        for size in hidden:
            layers += [nn.Linear(width, size), *([nn.BatchNorm1d(size)] if norm else []), nn.ReLU()]
            width = size
        self.layers = _started(nn.Sequential(*layers, nn.Linear(width, math.prod(shape))))

    def forward(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Images of these codes and labels."""
        if self.classes > 1:
            codes = with_labels(codes, labels, self.classes)
        return torch.sigmoid(self.layers(codes)).unflatten(1, self.shape)


def mlp_discriminator(inputs: int, hidden: Sequence[int]) -> nn.Sequential:
    """Rows of numbers in, one score a row out [n, 1]; records do not meet in it."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.ReLU()]
        inputs = size
    return _started(nn.Sequential(*layers, nn.Linear(inputs, 1)))


def _started(layers: nn.Sequential) -> nn.Sequential:
    """Normal weights of variance 2 / inputs and no biases: images differ from the start."""
    for layer in layers:
        if isinstance(layer, nn.Linear) and not layer.weight.is_meta:
            nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.in_features))
            nn.init.zeros_(layer.bias)
    return layers


def rows_with_labels(images: Tensor, labels: Tensor, classes: int) -> Tensor:
    """What a conditional discriminator reads: pixels and a one-hot label, [n, pixels + classes]."""
    return with_labels(images.flatten(1), labels, classes)
