"""Layers with spectral normalisation: one power iteration per forward pass.

The update rule in training is that of `torch.nn.utils.spectral_norm`, which torch has deprecated.
Its successor, `parametrizations.spectral_norm`, divides by a value half an iteration further and
starts with fifteen iterations from two random vectors, so the same random key would give other
critics (a test shows both). It also stores a second vector per weight, which is recomputed here, as
critics are stored after every turn.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_TINY = 1e-12


class SpectralWeight(nn.Module):
    """A weight divided by its largest singular value as a matrix [outputs, all other dimensions].

    The left singular vector is a buffer. Each forward pass in training mode advances it by one
    power iteration; both singular vectors are constants in the gradient.
    """

    left: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)
        start = torch.randn(len(weight), device=weight.device)
        self.register_buffer("left", F.normalize(start, dim=0, eps=_TINY))

    def normalised(self) -> Tensor:
        """The weight divided by its spectral norm, in the weight's own type under autocast too."""
        with torch.autocast(self.weight.device.type, enabled=False):
            matrix = self.weight.flatten(1)
            with torch.no_grad():
                right = F.normalize(matrix.t() @ self.left, dim=0, eps=_TINY)
                pushed = matrix @ right
                if self.training:
                    self.left.copy_(F.normalize(pushed, dim=0, eps=_TINY))
                left = self.left.clone()
            return self.weight / torch.dot(left, matrix @ right)


class SpectralConv2d(SpectralWeight):
    """A convolution with a normalised weight; its bias is free."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0
    ) -> None:
        plain = nn.Conv2d(inputs, outputs, kernel, stride, padding)
        super().__init__(plain.weight.data, None if plain.bias is None else plain.bias.data)
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of a batch."""
        return F.conv2d(x, self.normalised(), self.bias, self.stride, self.padding)

    def on_doubled(self, x: Tensor) -> Tensor:
        """`forward` of a batch whose pixels are first repeated in squares of 2x2.

        For kernels of 3x3 with padding 1. Of the nine products at an output pixel five meet equal
        inputs, so it is a transposed convolution by the kernel summed over 2x2 windows, with four
        products per output pixel."""
        kernel = F.pad(self.normalised().flip(2, 3), (1, 1, 1, 1))
        rows = kernel[:, :, 1:] + kernel[:, :, :-1]
        summed = rows[:, :, :, 1:] + rows[:, :, :, :-1]
        return F.conv_transpose2d(x, summed.transpose(0, 1), self.bias, stride=2, padding=1)


class SpectralLinear(SpectralWeight):
    """A linear layer with a normalised weight; its bias is free."""

    def __init__(self, inputs: int, outputs: int) -> None:
        plain = nn.Linear(inputs, outputs)
        super().__init__(plain.weight.data, plain.bias.data)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output for a batch."""
        return F.linear(x, self.normalised(), self.bias)


class SpectralEmbedding(SpectralWeight):
    """A table of vectors, one per label, normalised as a matrix."""

    def __init__(self, labels: int, width: int) -> None:
        super().__init__(nn.Embedding(labels, width).weight.data)

    def forward(self, labels: Tensor) -> Tensor:
        """The vectors of these labels."""
        return F.embedding(labels, self.normalised())
