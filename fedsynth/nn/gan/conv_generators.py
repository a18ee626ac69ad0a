"""Convolutional generators of images from latent vectors and labels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.types import Shape
from fedsynth.nn.gan.common import (
    pixel_norm,
    require_quarters,
    require_side,
    with_labels,
)


class ConvCondGen(nn.Module):
    """DP-MERF's generator: two linear layers, then twice [bilinear x 2, 5x5 convolution], sigmoid.

    Latent vectors and class indices in, pixels in [0, 1] out: [n, c, h, w]. Batch norm costs no
    privacy here, as no record passes through it; sample in evaluation mode. 166,161 parameters for
    28x28x1 and ten classes.
    """

    def __init__(self, latent_size: int = 5, classes: int = 10, shape: Shape = (1, 28, 28)) -> None:
        super().__init__()
        channels, height, width = shape
        require_quarters(shape)
        self.classes = classes
        self.start = (16, height // 4, width // 4)
        pixels = 16 * (height // 4) * (width // 4)
        self.dense = nn.Sequential(
            nn.Linear(latent_size + classes, 200),
            nn.BatchNorm1d(200),
            nn.ReLU(),
            nn.Linear(200, pixels),
            nn.BatchNorm1d(pixels),
        )
        self.first = nn.Conv2d(16, 8, 5, padding=2)
        self.second = nn.Conv2d(8, channels, 5, padding=2)

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """The images of these latent vectors and labels (class indices 0..classes-1)."""
        x = self.dense(with_labels(latents, labels, self.classes)).unflatten(1, self.start)
        x = x.contiguous(memory_format=torch.channels_last)  # a step takes a third less time
        x = F.relu(self.first(_upsample(x)))
        return torch.sigmoid(self.second(_upsample(x)))


class PriorGenerator(nn.Module):
    """PSG's prior on images: a generator of transposed convolutions without batch statistics.

    Output in network units, without a last activation: [n, c, h, w]. 1,114,305 parameters for
    28x28x1 and ten classes at the published depth of 256 channels; images of 32 pixels need no
    crop. Images of 64 pixels, for which there is no published form, take one more layer of half the
    channels, which doubles the sides.
    """

    def __init__(
        self, latent_size: int = 10, classes: int = 10, shape: Shape = (1, 28, 28), depth: int = 256
    ) -> None:
        super().__init__()
        channels, height, _ = shape
        require_side(shape, "the generator prior")
        self.classes = classes
        self.crop = 7 if height == 28 else 8
        self.start = (depth, 4, 4)
        self.dense = nn.Linear(latent_size + classes, depth * 4 * 4)
        self.first = nn.ConvTranspose2d(depth, depth // 2, 5)
        self.second = nn.ConvTranspose2d(depth // 2, depth // 4, 5)
        last, outputs = 8 if height == 28 else 10, channels
        if height == 64:
            outputs = max(1, depth // 8)
        self.third = nn.ConvTranspose2d(depth // 4, outputs, last, stride=2)
        self.fourth = None
        if height == 64:
            self.fourth = nn.ConvTranspose2d(outputs, channels, 4, stride=2, padding=1)

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """The images of these latent vectors and labels (class indices 0..classes-1)."""
        x = self.dense(with_labels(latents, labels, self.classes)).unflatten(1, self.start)
        x = self.first(pixel_norm(F.relu(x)))[:, :, : self.crop, : self.crop]
        x = self.second(pixel_norm(F.relu(x)))
        x = self.third(pixel_norm(F.relu(x)))
        return x if self.fourth is None else self.fourth(pixel_norm(F.relu(x)))


class DCGANGenerator(PriorGenerator):
    """GS-WGAN's small generator: the layers of `PriorGenerator`, with pixels in [0, 1] out."""

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """The images of these latent vectors and labels (class indices 0..classes-1)."""
        return torch.sigmoid(super().forward(latents, labels))


def _upsample(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
