"""GS-WGAN's large generator: residual blocks, spectral norm, pixel norm, no batch statistics."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.types import Shape
from fedsynth.nn.gan.common import pixel_norm, require_side, with_labels
from fedsynth.nn.gan.spectral_norm import SpectralConv2d, SpectralLinear

_EPS = 1e-10


class ResNetGenerator(nn.Module):
    """A linear layer, residual blocks that double the sides of 4x4, one convolution, sigmoid.

    Latent vectors and class indices in, pixels in [0, 1] out. 3,826,177 parameters for 28x28x1 and
    ten classes at the published depth of 256 channels. For images of 28 pixels the last convolution
    has no padding and the last two rows and columns are dropped. Three blocks as published; images
    of 64 pixels, for which there is no published form, take a fourth one.
    """

    def __init__(
        self, latent_size: int = 10, classes: int = 10, shape: Shape = (1, 28, 28), depth: int = 256
    ) -> None:
        super().__init__()
        channels, height, _ = shape
        require_side(shape, "the residual generator")
        self.classes, self.side = classes, height
        self.start = (depth, 4, 4)
        self.dense = SpectralLinear(latent_size + classes, depth * 4 * 4)
        self.blocks = nn.Sequential(*(_Block(depth) for _ in range(4 if height == 64 else 3)))
        self.last = SpectralConv2d(depth, channels, 3, padding=0 if height == 28 else 1)

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """The images of these latent vectors and labels."""
        x = self.dense(with_labels(latents, labels, self.classes)).unflatten(1, self.start)
        x = self.blocks(pixel_norm(F.relu(x), _EPS))
        return torch.sigmoid(self.last(x))[:, :, : self.side, : self.side]


class _Block(nn.Module):
    """Norm, upsampling and two convolutions, with a 1x1 convolution as the shortcut."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.first = SpectralConv2d(depth, depth, 3, padding=1)
        self.second = SpectralConv2d(depth, depth, 3, padding=1)
        self.beside = SpectralConv2d(depth, depth, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The output of the block, at twice the sides."""
        h = self.first.on_doubled(pixel_norm(x, _EPS))
        h = self.second(F.relu(pixel_norm(h, _EPS)))
        return h + _upsample(self.beside(x))  # 1x1: the same before and after


def _upsample(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="nearest")
