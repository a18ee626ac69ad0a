"""DP-Sinkhorn's generator: transposed convolutions from a quarter of the sides of an image."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedsynth.core.types import Shape
from fedsynth.nn.gan.common import require_quarters

EMBEDDING = 8  # length of the embedding of a label


class DeconvGenerator(nn.Module):
    """Latent vectors and class indices in, pixels in [0, 1] out: [n, c, h, w].

    A learnt embedding of the label is appended to the latent vector. One transposed convolution
    gives planes of a quarter of the sides, two more double them, and a 3x3 convolution and tanh
    follow. Batch norm is over generated images and never over records; sample in evaluation mode.
    The published depth is 256."""

    def __init__(
        self, latent_size: int = 16, classes: int = 10, shape: Shape = (1, 28, 28), depth: int = 256
    ) -> None:
        super().__init__()
        channels, height, width = shape
        require_quarters(shape)
        self.embedding = nn.Embedding(classes, EMBEDDING)
        halved, quarter = max(1, depth // 2), max(1, depth // 4)
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(latent_size + EMBEDDING, depth, (height // 4, width // 4)),
            nn.BatchNorm2d(depth),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(depth, halved, 4, stride=2, padding=1),
            nn.BatchNorm2d(halved),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(halved, quarter, 4, stride=2, padding=1),
            nn.BatchNorm2d(quarter),
            nn.LeakyReLU(0.2),
            nn.Conv2d(quarter, channels, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """The images of these latent vectors and labels (class indices 0..classes-1)."""
        x = torch.cat([latents, self.embedding(labels)], dim=1)[:, :, None, None]
        return (self.layers(x) + 1) / 2
