"""DataLens's generator: a DCGAN with the label appended to the input of every layer.

Batch norm is over the images of one call, in training and in sampling; it has no running statistics
and no record passes through it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import default_seed
from fedsynth.core.types import DatasetInfo, Shape
from fedsynth.nn.gan.common import with_labels

INIT_STD = 0.02


class LabelDCGAN(nn.Module):
    """Latent vectors in (-1, 1) and class indices in, pixels in [0, 1] out: [n, c, h, w].

    7,014,011 parameters for 28x28x1, ten classes and latent vectors of length 50."""

    def __init__(
        self,
        latent_size: int = 50,
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
        self.classes = classes
        self.start = (channels, height // 4, width // 4)
        pixels = channels * (height // 4) * (width // 4)
        self.first = nn.Linear(latent_size + classes, hidden)
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

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """The images of these latent vectors and labels (class indices 0..classes-1)."""
        x = self.first(with_labels(latents, labels, self.classes))
        x = self.second(with_labels(F.relu(self.first_norm(x)), labels, self.classes))
        x = F.relu(self.second_norm(x)).unflatten(1, self.start)
        x = F.relu(self.third_norm(_upsample(self.third, self._with_maps(x, labels))))
        return torch.sigmoid(_upsample(self.fourth, self._with_maps(x, labels)))

    def _with_maps(self, x: Tensor, labels: Tensor) -> Tensor:
        one_hot = F.one_hot(labels, self.classes).to(x)
        return torch.cat([x, one_hot[:, :, None, None].expand(-1, -1, *x.shape[2:])], dim=1)


def _norm(kind: type[nn.BatchNorm1d] | type[nn.BatchNorm2d], width: int) -> nn.Module:
    return kind(width, track_running_stats=False)


def _upsample(layer: nn.Module, x: Tensor) -> Tensor:
    """The output of a 'same' transposed convolution: cropped by one pixel before, two after."""
    y: Tensor = layer(x)
    return y[:, :, : 2 * x.shape[2], : 2 * x.shape[3]]


def make_label_dcgan(
    latent_size: int, classes: int, data: DatasetInfo, hidden: int, channels: int, *key: object
) -> LabelDCGAN:
    """A `LabelDCGAN` with weights drawn from the random key alone."""
    with default_seed(*key):
        return LabelDCGAN(latent_size, classes, data.shape, hidden, channels)
