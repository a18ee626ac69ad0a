"""The rearranged ConvNet computes what the plain one computes, forwards and backwards."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsynth.evaluation import swift
from fedsynth.models.classifiers import ConvNet
from fedsynth.models.zoo import classifier
from fedsynth.randomness import default_seed, torch_generator

SHAPES = [(1, 28, 28), (3, 32, 32), (2, 16, 16)]


def trained_looking(shape: tuple[int, int, int], width: int = 6) -> ConvNet:
    """A net whose norms have scales of both signs and shifts, as after training."""
    with default_seed("swift", shape):
        net = ConvNet(width, 5, shape)
        for layer in net.features:
            if isinstance(layer, nn.GroupNorm):
                nn.init.normal_(layer.weight)
                nn.init.normal_(layer.bias)
    return net


def gradients(
    net: nn.Module, forward: object, x: torch.Tensor, y: torch.Tensor
) -> list[torch.Tensor]:
    net.zero_grad()
    functional.cross_entropy(forward(x), y).backward()  # type: ignore[operator]
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in net.parameters()]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_same_logits_and_gradients(shape: tuple[int, int, int], scale: float) -> None:
    net = trained_looking(shape)
    exact = copy.deepcopy(net).double()
    x = torch.randn(7, *shape, generator=torch_generator("x")) * scale + 0.3
    y = torch.randint(0, 5, (7,), generator=torch_generator("y"))
    quick = swift.forward_of(net, shape[2])
    assert quick.logits is not net
    torch.testing.assert_close(quick.logits(x), exact(x.double()).float(), rtol=1e-4, atol=1e-4)
    expected = gradients(exact, exact, x.double(), y)
    for ours, theirs in zip(gradients(net, quick.logits, x, y), expected, strict=True):
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-3, atol=2e-5)


def test_the_bias_before_a_norm_has_no_gradient_at_all() -> None:
    net = trained_looking((1, 28, 28)).double()
    x = torch.randn(4, 1, 28, 28, generator=torch_generator("x")).double()
    grads = dict(
        zip(dict(net.named_parameters()), gradients(net, net, x, torch.arange(4)), strict=True)
    )
    for index in (0, 4, 8):
        assert float(grads[f"features.{index}.bias"].abs().max()) < 1e-12


@pytest.mark.parametrize("kind", ["black", "flat", "one pixel", "stripes"])
def test_images_without_variance(kind: str) -> None:
    net = trained_looking((1, 28, 28))
    x = torch.full((2, 1, 28, 28), {"black": 0.0, "flat": 3.0}.get(kind, -0.42))
    if kind == "one pixel":
        x[:, :, 3, 4] = 2.8
    if kind == "stripes":
        x[:, :, ::2] = 2.8
    quick = swift.forward_of(net, 28).logits(x)
    torch.testing.assert_close(quick, net(x), rtol=1e-3, atol=1e-3)


def test_works_after_inference() -> None:
    """The cached pooling matrices may be made in inference mode and used in training later."""
    swift._halves.cache_clear()
    swift._spread.cache_clear()
    net = trained_looking((1, 28, 28))
    quick = swift.forward_of(net, 28)
    x = torch.randn(3, 1, 28, 28, generator=torch_generator("x"))
    with torch.inference_mode():
        before = quick.logits(x)
    assert any(float(g.abs().sum()) for g in gradients(net, quick.logits, x, torch.arange(3)))
    assert torch.equal(before, quick.logits(x))


def test_other_nets_are_left_alone() -> None:
    for net, side in (
        (classifier("lenet", (1, 28, 28), 3), 28),
        (ConvNet(4, 3, (1, 18, 18)), 18),  # 18 does not halve evenly three times
        (nn.Sequential(ConvNet(4, 3)), 28),
    ):
        assert swift.forward_of(net, side).logits is net


def test_chunks_hold_every_row_once() -> None:
    forward = swift.Forward(nn.Identity(), at_once=3)
    x = torch.arange(11)
    parts = forward.chunks(x)
    assert torch.equal(torch.cat(parts), x)
    assert max(map(len, parts)) <= 3
