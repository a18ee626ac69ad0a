"""The ConvNet's training and testing passes, rearranged for a CPU core.

Same function, same gradients up to rounding (tests hold them against autograd on the plain
module); about 1.7 times faster at width 32, where memory traffic, not arithmetic, is the cost:

- instance norm cancels the bias of the convolution before it, so the bias is left out;
- the first convolution sees few channels. Its output's mean and variance follow from the mean and
  covariance of an image's patches, so convolution and norm become one small matrix an image,
  and the largest activation is written once, already normalised;
- ReLU works in place, and mean pooling is a matrix product (ATen's kernel is four times slower);
- a batch runs in chunks that fit the cache, and gradients add up.

The functions here overwrite what they saved, so a graph can be walked backwards once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fedsynth.models.classifiers import ConvNet

CHUNK_FLOATS = 1 << 22  # of the largest activation: a few of them fit the last-level cache
CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))  # the four pixels of a pooling window


@cache
def _halves(side: int) -> torch.Tensor:
    """The matrix that adds neighbours in a row and divides by four: [side, side // 2]."""
    matrix = torch.zeros(side, side // 2)
    matrix[torch.arange(side // 2 * 2), torch.arange(side // 2 * 2) // 2] = 0.25
    return matrix


@cache
def _spread(side: int) -> torch.Tensor:
    """The transpose of pooling two rows: [side // 2, 2 * side]."""
    return _halves(side).repeat(2, 1).t().contiguous()


def _relu_pool(y: torch.Tensor) -> torch.Tensor:
    """2x2 mean pooling of relu(y), which replaces y."""
    n, channels, height, width = y.shape
    pairs = y.relu_().view(-1, 2, width)
    return ((pairs[:, 0] + pairs[:, 1]) @ _halves(width)).view(n, channels, height // 2, -1)


def _relu_pool_backward(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gradient before pooling and ReLU, written over y = relu(...)."""
    width = y.shape[3]
    spread = (grad.reshape(-1, width // 2) @ _spread(width)).view_as(y)
    return torch.ops.aten.threshold_backward.grad_input(spread, y, 0, grad_input=y)


class _NormReluPool(torch.autograd.Function):
    """Instance norm, ReLU and 2x2 mean pooling of a convolution's output."""

    @staticmethod
    def forward(
        ctx: Any, z: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
    ) -> torch.Tensor:
        n, c, h, w = z.shape
        y, mean, rstd = torch.native_group_norm(z, weight, bias, n, c, h * w, c, eps)
        pooled = _relu_pool(y)
        ctx.save_for_backward(z, mean, rstd, weight)
        ctx.y = y
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        z, mean, rstd, weight = ctx.saved_tensors
        n, c, h, w = z.shape
        grad = _relu_pool_backward(grads[0], ctx.y)
        ctx.y = None
        out = torch.ops.aten.native_group_norm_backward(
            grad, z, mean, rstd, weight, n, c, h * w, c, [True, True, True]
        )
        return (*out, None)


class _MatrixReluPool(torch.autograd.Function):
    """relu(kernels @ patches) for the four pixels of each pooling window, summed. Kernels are one
    matrix an image; the patches, being data, get no gradient."""

    @staticmethod
    def forward(ctx: Any, patches: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
        y = torch.bmm(kernels, patches).relu_()
        ctx.save_for_backward(patches)
        ctx.y = y
        one, two, three, four = y.view(len(y), 4, -1, y.shape[2]).unbind(1)
        return (one + two).add_(three).add_(four)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (patches,) = ctx.saved_tensors
        y = ctx.y
        ctx.y = None
        windows = y.view(len(y), 4, -1, y.shape[2])
        torch.ops.aten.threshold_backward.grad_input(
            grads[0][:, None].expand_as(windows), windows, 0, grad_input=windows
        )
        return None, torch.bmm(patches, y.mT).mT


def _first_block(x: torch.Tensor, conv: nn.Conv2d, norm: nn.GroupNorm) -> torch.Tensor:
    """The first block, with the norm folded into the kernels, which so become one set an image.

    A pooling window sees a patch of 4x4 pixels, and the convolution at its four pixels is four
    matrices on that patch. Mean and variance over the image follow from those of the patches.
    """
    n, channels = x.shape[:2]
    padding = int(conv.padding[0])
    side = (x.shape[3] + 2 * padding - 2) // 2
    patches = functional.unfold(x, 4, stride=2, padding=padding)
    patches -= patches.mean(dim=(1, 2), keepdim=True)  # the norm cancels any constant
    average = patches.mean(dim=2).view(n, channels, 4, 4)
    second = (patches @ patches.mT / patches.shape[2]).view(n, channels, 4, 4, channels, 4, 4)
    mean = torch.stack([average[:, :, a : a + 3, b : b + 3] for a, b in CORNERS]).mean(0)
    mean = mean.view(n, -1)
    moments = [second[:, :, a : a + 3, b : b + 3, :, a : a + 3, b : b + 3] for a, b in CORNERS]
    covariance = torch.stack(moments).mean(0).view(n, -1)
    covariance -= (mean[:, :, None] * mean[:, None]).flatten(1)

    kernels = conv.weight.flatten(1)
    variance = covariance @ (kernels[:, :, None] * kernels[:, None]).flatten(1).t()
    scale = (variance.clamp_min(0) + norm.eps).rsqrt() * (norm.weight / 4)
    shift = norm.bias / 4 - scale * (mean @ kernels.t())
    four = torch.stack([functional.pad(conv.weight, (b, 1 - b, a, 1 - a)) for a, b in CORNERS])
    scaled = scale[:, None, :, None] * four.flatten(2)
    shifts = shift[:, None, :, None].expand(-1, 4, -1, -1)
    weights = torch.cat([scaled, shifts], dim=3).flatten(1, 2)
    patches = functional.pad(patches, (0, 0, 0, 1), value=1.0)
    return _MatrixReluPool.apply(patches, weights).view(n, -1, side, side)


@dataclass(frozen=True)
class Forward:
    """Logits of images that need no gradient, and how many images fit one chunk."""

    logits: Callable[[torch.Tensor], torch.Tensor]
    at_once: int

    def chunks(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The rows of `x`, images or labels, in chunks of about equal size."""
        return x.chunk(math.ceil(len(x) / self.at_once))


def forward_of(net: nn.Module, side: int) -> Forward:
    """What `net` computes on square images of this side: rearranged where that is possible (a
    ConvNet on the CPU whose activations halve evenly three times), else the net itself."""
    if type(net) is not ConvNet or next(net.parameters()).device.type != "cpu":
        return Forward(net, sys.maxsize)
    convolutions = [layer for layer in net.features if isinstance(layer, nn.Conv2d)]
    norms = [layer for layer in net.features if isinstance(layer, nn.GroupNorm)]
    grown = side + 2 * int(convolutions[0].padding[0]) - 2
    if grown % 8:
        return Forward(net, sys.maxsize)

    def logits(x: torch.Tensor) -> torch.Tensor:
        x = _first_block(x, convolutions[0], norms[0])
        for conv, norm in zip(convolutions[1:], norms[1:], strict=True):
            z = functional.conv2d(x, conv.weight, None, padding=1)
            x = _NormReluPool.apply(z, norm.weight, norm.bias, norm.eps)
        return net.classifier(x.flatten(1))

    floats = convolutions[0].out_channels * grown**2
    return Forward(logits, max(1, CHUNK_FLOATS // floats))
