"""Linear generator and critic of the Wasserstein GAN whose critic has bounded weights.

Both see pixels in (-1, 1), have leaky ReLUs, and start with PyTorch's default weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedsynth.core.types import Shape

SLOPE = 0.2
NORM_EPSILON = 0.8  # of the published program; it damps the normalisation of small values


class WassersteinGenerator(nn.Module):
    """Latent vectors in, pixels in [0, 1] out: [n, c, h, w]; class indices are ignored.

    All hidden layers but the first have batch norm, over the generated images of a call in training
    and with running statistics in evaluation; no record passes through it."""

    def __init__(self, latent_size: int, shape: Shape, hidden: Sequence[int]) -> None:
        super().__init__()
        self.shape = shape
        layers: list[nn.Module] = []
        for number, size in enumerate(hidden):
            norm = [nn.BatchNorm1d(size, NORM_EPSILON)] if number else []
            layers += [nn.Linear(latent_size, size), *norm, nn.LeakyReLU(SLOPE)]
            latent_size = size
        self.layers = nn.Sequential(*layers, nn.Linear(latent_size, math.prod(shape)))

    def forward(self, latents: Tensor, _labels: Tensor) -> Tensor:
        """The images of these latent vectors."""
        return ((torch.tanh(self.layers(latents)) + 1) / 2).unflatten(1, self.shape)


def critic_rows(pixels: Tensor) -> Tensor:
    """The critic's inputs for images with pixels in [0, 1]: rows in [-1, 1]."""
    return 2 * pixels.flatten(1) - 1


def wasserstein_critic(inputs: int, hidden: Sequence[int]) -> nn.Sequential:
    """Rows of numbers in, one score per row out [n, 1]; each score depends on its row alone."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.LeakyReLU(SLOPE)]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, 1))
