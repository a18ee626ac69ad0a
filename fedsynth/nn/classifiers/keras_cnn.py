"""The small convolutional network of the Keras examples, with dropout."""

from __future__ import annotations

import torch
from torch import nn

from fedsynth.core.errors import UserError
from fedsynth.core.types import Shape


class KeyedDropout(nn.Module):
    """Dropout with its own generator, seeded when the network is constructed.

    Training then depends on the network's random key alone and not on other users of torch's
    global generator."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        seed = int(torch.randint(2**62, (), device="cpu"))
        self._generator = torch.Generator().manual_seed(seed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The input with random elements zero and the others scaled up; unchanged in evaluation."""
        if not self.training:
            return x
        kept = torch.rand(x.shape, generator=self._generator) >= self.probability
        return x * kept.to(x.device) / (1 - self.probability)


def build(shape: Shape, classes: int, _width: int) -> nn.Module:
    """Two unpadded convolutions with dropout and one hidden layer (515,146 parameters at 28x28x1).

    Initialised as in Keras: weights from Glorot's uniform distribution, biases zero."""
    channels, height, width = shape
    if min(height, width) < 8:
        raise UserError(
            f"classifier 'keras_cnn' needs at least 8 pixels per side, got {height}x{width}."
        )
    cells = ((height - 2) // 2 - 2) * ((width - 2) // 2 - 2)
    net = nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        KeyedDropout(0.2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        KeyedDropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * cells, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return net
