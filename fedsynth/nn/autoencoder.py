"""A small autoencoder whose every weight can be trained under privacy: no layer mixes records."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.randomness import default_seed
from fedsynth.core.types import DatasetInfo
from fedsynth.nn.per_example.sequential import UnsupportedModel


class Autoencoder(nn.Module):
    """Pixels to a code on the unit sphere and back, through one hidden layer on either side."""

    def __init__(self, shape: tuple[int, int, int], code: int, hidden: int) -> None:
        super().__init__()
        pixels = math.prod(shape)
        self.shape = shape
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, code)
        )
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, pixels))

    def encode(self, pixels: Tensor) -> Tensor:
        """Codes of length one, [n, code]."""
        return F.normalize(self.encoder(pixels), dim=1)

    def decode(self, codes: Tensor) -> Tensor:
        """Pixels in [0, 1], [n, c, h, w]."""
        return self.decoder(codes).sigmoid().view(-1, *self.shape)

    def in_order(self) -> tuple[nn.Module, ...]:
        """Not one chain of layers, so nobody needs to trace it (which no other thread survives)."""
        raise UnsupportedModel("its codes are normalised and its output is compared with its input")

    def forward(self, pixels: Tensor) -> Tensor:
        """What the way there and back loses of each record, [n, pixels]: see `lost`."""
        return (self.decode(self.encode(pixels)) - pixels).flatten(1)


def lost(differences: Tensor, _labels: Tensor) -> Tensor:
    """The loss of each record: the squared length of what is lost."""
    return differences.square().sum(1)


def make_autoencoder(data: DatasetInfo, code: int, hidden: int, *key: object) -> Autoencoder:
    """One with PyTorch's default initialisation, whose weights depend on the key alone."""
    with default_seed(*key):
        return Autoencoder(data.shape, code, hidden)


def filled_autoencoder(
    data: DatasetInfo, code: int, hidden: int, state: Mapping[str, Tensor]
) -> Autoencoder:
    """One with these weights."""
    with torch.device("meta"):
        net = Autoencoder(data.shape, code, hidden)
    net = net.to_empty(device="cpu")
    net.load_state_dict(dict(state))
    return net
