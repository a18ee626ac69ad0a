"""The block of the images: its four passes against automatic differentiation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp

from fedsynth.nn.matching_gradient.first_block import FirstBlock
from fedsynth.nn.matching_gradient.network import Block


def last(planes: Tensor) -> Tensor:
    return planes.permute(0, 2, 3, 1).contiguous()


def first(channels_last: Tensor) -> Tensor:
    return channels_last.permute(0, 3, 1, 2)


@pytest.mark.parametrize(("channels", "kernel_size", "padding"), [(1, 3, 1), (3, 5, 2), (2, 3, 0)])
def test_the_passes_are_those_of_autograd(channels: int, kernel_size: int, padding: int) -> None:
    torch.manual_seed(1)
    convolution = nn.Conv2d(channels, 4, kernel_size, padding=padding)
    norm = nn.InstanceNorm2d(4, affine=True)
    net = nn.Sequential(convolution, norm, nn.ReLU(), nn.AvgPool2d(2)).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    block = FirstBlock(Block(convolution, norm, 2), torch.float64)
    kernel = convolution.weight.detach()
    x = torch.randn(5, channels, 8, 8, dtype=torch.float64)
    v = torch.randn_like(kernel)

    def forward(at: Tensor, weight: Tensor) -> Tensor:
        return functional_call(net, {"0.weight": weight}, (at,))

    def backward(at: Tensor, weight: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
        return vjp(forward, at, weight)[1](upstream)

    out = forward(x, kernel)
    g, g_along = torch.randn(2, *out.shape, dtype=torch.float64)
    torch.testing.assert_close(first(block.forward(x)), out)
    torch.testing.assert_close(block.backward(last(g)), backward(x, kernel, g)[1])
    still = torch.zeros_like(x)
    torch.testing.assert_close(
        first(block.forward_along(v)), jvp(forward, (x, kernel), (still, v))[1]
    )
    _, (expected, _) = jvp(backward, (x, kernel, g), (still, v, g_along))
    torch.testing.assert_close(block.backward_along(last(g_along)), expected)
