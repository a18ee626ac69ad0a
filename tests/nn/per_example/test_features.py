"""Features and their gradient at the images, against automatic differentiation."""

from __future__ import annotations

import pytest
import torch

from fedsynth.nn.classifiers.convnet import ConvNet, make_convnet
from fedsynth.nn.per_example import features

SHAPES = [(1, 28, 28), (3, 32, 32), (2, 30, 30), (1, 8, 8)]  # 30 does not halve evenly


def a_net(shape: tuple[int, int, int]) -> ConvNet:
    """A net whose norms are not at their start values, so that nothing cancels by chance."""
    net = make_convnet(6, shape, 3, "features", shape)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.2)
    return net


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk", [1, 1 << 21])
def test_rows_and_their_gradient_are_those_of_autograd(monkeypatch, shape, chunk):
    monkeypatch.setattr(features, "CHUNK_FLOATS", chunk)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn((19, *shape), generator=generator)
    net = a_net(shape)
    leaf = images.clone().requires_grad_()
    expected = net.embed(leaf)
    gradients = torch.randn(expected.shape, generator=generator)
    (at_images,) = torch.autograd.grad(expected, leaf, gradients)

    ours = features.ConvFeatures(net.features)
    torch.testing.assert_close(ours.forward(images, keep=True), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.backward(gradients), at_images, rtol=1e-3, atol=1e-5)


def test_the_images_are_not_touched():
    images = torch.randn((5, 1, 28, 28), generator=torch.Generator().manual_seed(0))
    before = images.clone()
    ours = features.ConvFeatures(a_net((1, 28, 28)).features)
    ours.backward(torch.ones_like(ours.forward(images, keep=True)))
    assert torch.equal(images, before)


def test_bfloat16_is_no_further_from_the_truth_than_autocast():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn((16, 1, 28, 28), generator=generator)
    net = a_net((1, 28, 28))

    def by_autograd(net: ConvNet, x: torch.Tensor, autocast: bool) -> list[torch.Tensor]:
        leaf = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            rows = net.embed(leaf)
        gradients = torch.cos(torch.arange(rows.numel(), dtype=rows.dtype)).view_as(rows)
        return [rows.detach(), *torch.autograd.grad(rows, leaf, gradients)]

    truth = by_autograd(a_net((1, 28, 28)).double(), images.double(), False)
    theirs = by_autograd(net, images, True)
    ours = features.ConvFeatures(net.features, torch.bfloat16)
    rows = ours.forward(images, keep=True)
    gradients = torch.cos(torch.arange(rows.numel(), dtype=torch.float64)).view_as(rows).float()
    for mine, other, exact in zip([rows, ours.backward(gradients)], theirs, truth, strict=True):
        assert mine.dtype == torch.float32
        assert (
            1e-5
            < (mine - exact).norm() / exact.norm()
            < 1.2 * (other - exact).norm() / exact.norm()
        )
