"""Generators of images from codes and labels. They never see a record, only what was released."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import default_seed
from fedsynth.core.types import DatasetInfo

Shape = tuple[int, int, int]


class ConvCondGen(nn.Module):
    """DP-MERF's generator: two linear layers, then twice [bilinear x 2, 5x5 convolution], sigmoid.

    Codes and one-hot labels in, pixels in [0, 1] out: [n, c, h, w]. Batch norm is harmless here, as
    no record passes through it; sample in evaluation mode. 166,161 parameters for 28x28x1 and ten
    classes.
    """

    def __init__(self, code: int = 5, classes: int = 10, shape: Shape = (1, 28, 28)) -> None:
        super().__init__()
        channels, height, width = shape
        if height % 4 or width % 4:
            raise UserError(
                f"this generator doubles the image's sides twice, so they must be multiples of 4, "
                f"not {height}x{width}."
            )
        self.code = code
        self.classes = classes
        self.start = (16, height // 4, width // 4)
        pixels = 16 * (height // 4) * (width // 4)
        self.dense = nn.Sequential(
            nn.Linear(code + classes, 200),
            nn.BatchNorm1d(200),
            nn.ReLU(),
            nn.Linear(200, pixels),
            nn.BatchNorm1d(pixels),
        )
        self.first = nn.Conv2d(16, 8, 5, padding=2)
        self.second = nn.Conv2d(8, channels, 5, padding=2)

    def forward(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Images of these codes and labels (positions 0..classes-1)."""
        x = self.dense(with_labels(codes, labels, self.classes)).unflatten(1, self.start)
        x = x.contiguous(memory_format=torch.channels_last)  # a third off the time of a step
        x = F.relu(self.first(_doubled(x)))
        return torch.sigmoid(self.second(_doubled(x)))


class PriorGenerator(nn.Module):
    """The generator whose images are PSG's prior: transposed convolutions, no batch statistics.

    Output in network units, without a last activation: [n, c, h, w]. 1,114,305 parameters for
    28x28x1 and ten classes at the published depth of 256 channels; images of 32 pixels need no
    crop.
    """

    def __init__(
        self, code: int = 10, classes: int = 10, shape: Shape = (1, 28, 28), depth: int = 256
    ) -> None:
        super().__init__()
        channels, height, width = shape
        if height != width or height not in (28, 32):
            raise UserError(
                f"the generator prior draws images of 28 or 32 pixels, not {height}x{width}."
            )
        self.classes = classes
        self.crop = 7 if height == 28 else 8
        self.start = (depth, 4, 4)
        self.dense = nn.Linear(code + classes, depth * 4 * 4)
        self.first = nn.ConvTranspose2d(depth, depth // 2, 5)
        self.second = nn.ConvTranspose2d(depth // 2, depth // 4, 5)
        last = 8 if height == 28 else 10
        self.third = nn.ConvTranspose2d(depth // 4, channels, last, stride=2)

    def forward(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Images of these codes and labels (positions 0..classes-1)."""
        x = self.dense(with_labels(codes, labels, self.classes)).unflatten(1, self.start)
        x = self.first(pixel_norm(F.relu(x)))[:, :, : self.crop, : self.crop]
        x = self.second(pixel_norm(F.relu(x)))
        return self.third(pixel_norm(F.relu(x)))


class DCGANGenerator(PriorGenerator):
    """GS-WGAN's small generator: the same layers, pixels in [0, 1] out."""

    def forward(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Images of these codes and labels (positions 0..classes-1)."""
        return torch.sigmoid(super().forward(codes, labels))


def make_generator(
    kind: Callable[[int, int, Shape], nn.Module],
    code: int,
    classes: int,
    data: DatasetInfo,
    *key: object,
) -> nn.Module:
    """A generator with PyTorch's default initialisation whose weights depend on the key alone."""
    with default_seed(*key):
        return kind(code, classes, data.shape)


def with_labels(codes: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Codes with one-hot labels appended."""
    return torch.cat([codes, F.one_hot(labels, classes).to(codes)], dim=1)


def _doubled(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def pixel_norm(x: Tensor, eps: float = 1e-8) -> Tensor:
    """Every position's channels scaled to mean square one."""
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + eps)
