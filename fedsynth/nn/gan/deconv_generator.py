"""DP-Sinkhorn's generator: transposed convolutions from a quarter of the image's sides."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedsynth.core.errors import UserError
from fedsynth.nn.gan.conv_generators import Shape

EMBEDDING = 8  # numbers a label is turned into


class DeconvGenerator(nn.Module):
    """Codes and labels in, pixels in [0, 1] out: [n, c, h, w].

    A label becomes a learnt vector beside the code; one transposed convolution makes planes of a
    quarter of the sides, two double them, a 3x3 convolution and tanh end it. Batch norm sees what
    is drawn and never a record; sample in evaluation mode. The published depth is 256."""

    def __init__(
        self, code: int = 16, classes: int = 10, shape: Shape = (1, 28, 28), depth: int = 256
    ) -> None:
        super().__init__()
        channels, height, width = shape
        if height % 4 or width % 4:
            raise UserError(
                f"this generator doubles the image's sides twice, so they must be multiples of 4, "
                f"not {height}x{width}."
            )
        self.embedding = nn.Embedding(classes, EMBEDDING)
        halved, quarter = max(1, depth // 2), max(1, depth // 4)
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(code + EMBEDDING, depth, (height // 4, width // 4)),
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

    def forward(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Images of these codes and labels (positions 0..classes-1)."""
        x = torch.cat([codes, self.embedding(labels)], dim=1)[:, :, None, None]
        return (self.layers(x) + 1) / 2
