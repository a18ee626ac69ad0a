"""A block within the network: its four passes against automatic differentiation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp

from fedsynth.nn.matching_gradient.inner_block import InnerBlock
from fedsynth.nn.matching_gradient.network import Block


def block_and_net() -> tuple[InnerBlock, nn.Sequential]:
    torch.manual_seed(0)
    convolution, norm = nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(4, 4)
    net = nn.Sequential(convolution, norm, nn.ReLU(), nn.AvgPool2d(2)).double()
    for weight in norm.parameters():
        nn.init.normal_(weight)
    return InnerBlock(Block(convolution, norm, 2), torch.float64), net


def last(planes: Tensor) -> Tensor:
    return planes.permute(0, 2, 3, 1).contiguous()


def first(channels_last: Tensor) -> Tensor:
    return channels_last.permute(0, 3, 1, 2)


def test_the_passes_are_those_of_autograd() -> None:
    block, net = block_and_net()
    kernel = net[0].weight.detach()
    x, x_along = torch.randn(2, 5, 3, 6, 6, dtype=torch.float64)
    g, g_along = torch.randn(2, 5, 4, 3, 3, dtype=torch.float64)
    v = torch.randn_like(kernel)

    def forward(at: Tensor, weight: Tensor) -> Tensor:
        return functional_call(net, {"0.weight": weight}, (at,))

    def backward(at: Tensor, weight: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
        return vjp(forward, at, weight)[1](upstream)

    torch.testing.assert_close(first(block.forward(last(x))), forward(x, kernel))
    at_input, at_kernel = block.backward(last(g))
    torch.testing.assert_close((first(at_input), at_kernel), backward(x, kernel, g))
    _, expected = jvp(forward, (x, kernel), (x_along, v))
    torch.testing.assert_close(first(block.forward_along(last(x_along), v)), expected)
    _, (expected, _) = jvp(backward, (x, kernel, g), (x_along, v, g_along))
    torch.testing.assert_close(first(block.backward_along(last(g_along))), expected)
