"""Generators and discriminators of linear layers, as in the early private GANs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.types import Shape
from fedsynth.nn.gan.common import with_labels


class MLPGenerator(nn.Module):
    """Latent vectors and class indices in, pixels in [0, 1] out: [n, c, h, w].

    With one class, labels are ignored."""

    def __init__(
        self,
        latent_size: int,
        classes: int,
        shape: Shape,
        hidden: Sequence[int],
    ) -> None:
        super().__init__()
        self.classes, self.shape = classes, shape
        layers: list[nn.Module] = []
        width = latent_size + (classes if classes > 1 else 0)
        for size in hidden:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.layers = _initialise(nn.Sequential(*layers, nn.Linear(width, math.prod(shape))))

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """The images of these latent vectors and labels."""
        if self.classes > 1:
            latents = with_labels(latents, labels, self.classes)
        return torch.sigmoid(self.layers(latents)).unflatten(1, self.shape)


def mlp_discriminator(inputs: int, hidden: Sequence[int]) -> nn.Sequential:
    """Rows of numbers in, one score per row out [n, 1]; each score depends on its row alone."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.ReLU()]
        inputs = size
    return _initialise(nn.Sequential(*layers, nn.Linear(inputs, 1)))


def _initialise(layers: nn.Sequential) -> nn.Sequential:
    """The layers with normal weights of variance 2 / inputs and biases of zero."""
    for layer in layers:
        if isinstance(layer, nn.Linear) and not layer.weight.is_meta:
            nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.in_features))
            nn.init.zeros_(layer.bias)
    return layers


def rows_with_labels(
    images: Tensor, labels: Tensor, classes: int, label_scale: float = 1.0
) -> Tensor:
    """Inputs of a conditional discriminator: pixels and one-hot labels times `label_scale`,
    [n, pixels + classes]."""
    one_hot = F.one_hot(labels, classes).to(images)
    return torch.cat([images.flatten(1), label_scale * one_hot], dim=1)
