"""A small autoencoder that can be trained under privacy: no layer mixes records."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.randomness import default_seed
from fedsynth.core.types import DatasetInfo, Shape
from fedsynth.nn.per_example.sequential import UnsupportedModel


class Autoencoder(nn.Module):
    """Pixels to a latent vector on the unit sphere and back, with a hidden layer on either side."""

    def __init__(self, shape: Shape, latent_size: int, hidden: int) -> None:
        super().__init__()
        pixels = math.prod(shape)
        self.shape = shape
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, latent_size)
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent_size, hidden), nn.ReLU(), nn.Linear(hidden, pixels)
        )

    def encode(self, pixels: Tensor) -> Tensor:
        """Latent vectors of norm one, [n, latent size]."""
        return F.normalize(self.encoder(pixels), dim=1)

    def decode(self, latents: Tensor) -> Tensor:
        """Pixels in [0, 1], [n, c, h, w]."""
        return self.decoder(latents).sigmoid().view(-1, *self.shape)

    def layer_sequence(self) -> tuple[nn.Module, ...]:
        """Refuse: this is no sequence of layers. Tracing, which is not thread-safe, is avoided."""
        raise UnsupportedModel("its output is compared with its input")

    def forward(self, pixels: Tensor) -> Tensor:
        """The reconstruction error of each pixel, [n, pixels], for `reconstruction_loss`."""
        return (self.decode(self.encode(pixels)) - pixels).flatten(1)


def reconstruction_loss(differences: Tensor, _labels: Tensor) -> Tensor:
    """The squared reconstruction error of each record."""
    return differences.square().sum(1)


def make_autoencoder(data: DatasetInfo, latent_size: int, hidden: int, *key: object) -> Autoencoder:
    """An autoencoder with PyTorch's default initialisation, drawn from the random key alone."""
    with default_seed(*key):
        return Autoencoder(data.shape, latent_size, hidden)


def autoencoder_from_state(
    data: DatasetInfo, latent_size: int, hidden: int, state: Mapping[str, Tensor]
) -> Autoencoder:
    """An autoencoder with a copy of these weights."""
    with torch.device("meta"):
        net = Autoencoder(data.shape, latent_size, hidden)
    net = net.to_empty(device="cpu")
    net.load_state_dict(dict(state))
    return net
