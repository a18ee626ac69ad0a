"""DataLens's generator: a DCGAN that sees the label again before every layer.

Batch norm is over whatever is drawn at once, when it is trained and when it is sampled: no record
passes through it, and there are no running statistics.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import default_seed
from fedsynth.core.types import DatasetInfo
from fedsynth.nn.gan.conv_generators import Shape, with_labels

INIT_STD = 0.02


class LabelDCGAN(nn.Module):
    """Codes in (-1, 1) and labels in, pixels in [0, 1] out: [n, c, h, w].

    7,014,011 parameters for 28x28x1, ten classes and codes of length 50."""

    def __init__(
        self,
        code: int = 50,
        classes: int = 10,
        shape: Shape = (1, 28, 28),
        hidden: int = 1024,
        channels: int = 128,
    ) -> None:
        super().__init__()
        colours, height, width = shape
        if height != width or height % 4:
            raise UserError(
                "DataLens's generator doubles square images twice, so their sides must be "
                f"multiples of 4, not {height}x{width}."
            )
        self.code, self.classes = code, classes
        self.start = (channels, height // 4, width // 4)
        pixels = channels * (height // 4) * (width // 4)
        self.first = nn.Linear(code + classes, hidden)
        self.first_norm = _norm(nn.BatchNorm1d, hidden)
        self.second = nn.Linear(hidden + classes, pixels)
        self.second_norm = _norm(nn.BatchNorm1d, pixels)
        self.third = nn.ConvTranspose2d(channels + classes, channels, 5, stride=2, padding=1)
        self.third_norm = _norm(nn.BatchNorm2d, channels)
        self.fourth = nn.ConvTranspose2d(channels + classes, colours, 5, stride=2, padding=1)
        for layer in (self.first, self.second, self.third, self.fourth):
            nn.init.normal_(layer.weight, std=INIT_STD)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Images of these codes and labels (positions 0..classes-1)."""
        x = self.first(with_labels(codes, labels, self.classes))
        x = self.second(with_labels(F.relu(self.first_norm(x)), labels, self.classes))
        x = F.relu(self.second_norm(x)).unflatten(1, self.start)
        x = F.relu(self.third_norm(_doubled(self.third, self._with_maps(x, labels))))
        return torch.sigmoid(_doubled(self.fourth, self._with_maps(x, labels)))

    def _with_maps(self, x: Tensor, labels: Tensor) -> Tensor:
        one_hot = F.one_hot(labels, self.classes).to(x)
        return torch.cat([x, one_hot[:, :, None, None].expand(-1, -1, *x.shape[2:])], dim=1)


def _norm(kind: type[nn.BatchNorm1d] | type[nn.BatchNorm2d], width: int) -> nn.Module:
    return kind(width, track_running_stats=False)


def _doubled(layer: nn.Module, x: Tensor) -> Tensor:
    """The output of a 'same' transposed convolution: one row cut off before, two behind."""
    made: Tensor = layer(x)
    return made[:, :, : 2 * x.shape[2], : 2 * x.shape[3]]


def make_label_dcgan(
    code: int, classes: int, data: DatasetInfo, hidden: int, channels: int, *key: object
) -> LabelDCGAN:
    """A generator whose weights depend on the key alone."""
    with default_seed(*key):
        return LabelDCGAN(code, classes, data.shape, hidden, channels)
