"""The first block of a convolutional classifier as one layer, which takes most of the time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsynth.nn.per_example.gradient_rows import Dense, PerExampleGradient
from fedsynth.nn.per_example.layers import Layer, add, aten, norm_channels, weights_of

_CACHED_FLOATS = (
    1 << 19
)  # of an activation that is processed at a time, so that it stays in the cache


class FusedConvNormReluPool(Layer):
    """[convolution, instance norm, ReLU, mean pool] of the image itself, as one layer.

    An image has few channels, so the patches under the kernel are few rows: with the patches
    centred, the mean of the convolution is zero, its variance is a small quadratic form in their
    covariance, and convolution and norm together are one small matrix per record. All gradients
    follow from one product of the patches with the masked gradient at the ReLU. Positions are kept
    in the order (position in the pool window, window), so that pooling adds contiguous blocks.

    The convolution's bias cancels in the norm: its gradient is exactly zero.
    """

    def __init__(
        self,
        convolution: nn.Conv2d,
        norm: nn.GroupNorm | nn.InstanceNorm2d,
        side: int,
        compute: torch.dtype,
    ) -> None:
        self.weights = weights_of(convolution) + weights_of(norm)
        self.kernel = convolution.weight.detach()
        self.flat = self.kernel.flatten(1).contiguous()
        self.bias = convolution.bias
        self.padding = tuple(int(pad) for pad in convolution.padding)
        self.channels, self.eps = norm_channels(norm), norm.eps
        blank = self.kernel.new_ones(self.channels)
        self.scale = blank if norm.weight is None else norm.weight.detach()
        self.shift = torch.zeros_like(blank) if norm.bias is None else norm.bias.detach()
        self.affine = norm.weight is not None
        self.side = side
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        b, k = len(x), self.side
        patches, height, width = self._patches(x)
        centred = patches[:, :-1]
        self.moved = self.flat @ (centred @ centred.transpose(1, 2) / patches.shape[2])
        variance = (self.moved * self.flat).sum(2).clamp_(min=0)
        self.rstd = torch.rsqrt(variance + self.eps)
        self.gain = self.scale * self.rstd
        matrix = torch.cat(
            [self.gain.unsqueeze(2) * self.flat, self.shift.expand(b, -1).unsqueeze(2)], 2
        )
        self.patches = patches.to(self.compute)
        matrix = matrix.to(self.compute)
        self.y = x.new_empty(b, self.channels, k * k, patches.shape[2] // k**2)
        pooled = x.new_empty(b, self.channels, 1, self.y.shape[3])
        for part in self._parts():
            y = self.y[part].flatten(2)
            if y.dtype == self.compute:
                torch.bmm(matrix[part], self.patches[part], out=y)
            else:
                y.copy_(torch.bmm(matrix[part], self.patches[part]))
            pooled[part, :, 0] = add(y.relu_().view_as(self.y[part]).unbind(2))
        return pooled.mul_(1 / k**2).view(b, self.channels, height // k, width // k)

    def backward(self, g: Tensor, onward: bool) -> Tensor:
        g = g.flatten(2).mul(1 / self.side**2).unsqueeze(2)
        rows, channels = self.patches.shape[1], self.channels
        product = self.patches.new_empty(len(g), rows, channels)
        for part in self._parts():
            y = self.y[part]
            aten.threshold_backward.grad_input(g[part].expand_as(y), y, 0, grad_input=y)
            masked = y.flatten(2).to(self.compute).transpose(1, 2)
            torch.bmm(self.patches[part], masked, out=product[part])
        self.product = product.to(g.dtype).transpose(1, 2)
        return g

    def per_example_gradients(self) -> list[PerExampleGradient]:
        along, shifts = self.product[:, :, :-1], self.product[:, :, -1].clone()
        scales = self.rstd * (along * self.flat).sum(2)
        kernel = along - (scales * self.rstd).unsqueeze(2) * self.moved
        kernel = (kernel * self.gain.unsqueeze(2)).view(-1, *self.kernel.shape)
        gradients = [kernel]
        if self.bias is not None:
            gradients.append(torch.zeros_like(shifts))
        gradients += [scales, shifts] if self.affine else []
        return [Dense(rows) for rows in gradients]

    def _parts(self) -> list[slice]:
        """Slices of records whose activations together fit a core's cache."""
        count = max(1, _CACHED_FLOATS // self.y[0].numel())
        return [slice(i, i + count) for i in range(0, len(self.y), count)]

    def sides(self, shape: Sequence[int]) -> tuple[int, int]:
        """Height and width of the convolution of an image of this shape."""
        height, width = (
            size + 2 * pad - kernel + 1
            for size, pad, kernel in zip(
                shape[-2:], self.padding, self.kernel.shape[2:], strict=True
            )
        )
        return height, width

    def _patches(self, x: Tensor) -> tuple[Tensor, int, int]:
        """The centred patch under each position of the kernel, and a row of ones below."""
        c, kh, kw = self.kernel.shape[1:]
        pad_h, pad_w = self.padding
        padded = F.pad(x, (pad_w, pad_w, pad_h, pad_h)).contiguous()
        height, width = self.sides(x.shape)
        s0, s1, s2, s3 = padded.stride()
        k = self.side
        size = (len(x), c, kh, kw, k, k, height // k, width // k)
        under = padded.as_strided(size, (s0, s1, s2, s3, s2, s3, k * s2, k * s3))
        patches = x.new_empty(len(x), c * kh * kw + 1, height * width)
        rows = patches[:, :-1]
        rows.view(size).copy_(under)
        rows.sub_(rows.mean(2, keepdim=True))
        patches[:, -1] = 1
        return patches, height, width
