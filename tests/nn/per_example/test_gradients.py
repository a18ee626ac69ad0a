"""Plain gradients and logits by hand-written layers against automatic differentiation."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.nn.classifiers.convnet import ConvNet, make_convnet
from fedsynth.nn.classifiers.poolnet import PoolNet
from fedsynth.nn.classifiers.registry import classifier
from fedsynth.nn.per_example import gradients
from fedsynth.nn.per_example.gradients import logits, loss_and_gradients

Shape = tuple[int, int, int]


def _models() -> list[nn.Module]:
    norm = nn.Sequential(nn.Conv2d(1, 6, 3), nn.GroupNorm(2, 6), nn.ReLU(), nn.AvgPool2d(4))
    pooled = nn.Sequential(nn.Conv2d(1, 6, 3), nn.MaxPool2d(4))
    return [
        make_convnet(6, (1, 28, 28), 10, 0),
        nn.Sequential(norm, nn.Flatten(), nn.Linear(216, 10)),
        nn.Sequential(pooled, nn.Flatten(), nn.Linear(216, 10)),
    ]


@pytest.mark.parametrize("model", _models())
def test_equals_automatic_differentiation(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(21, 1, 28, 28, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 10, (21,), generator=generator)
    model.double()
    loss, found = loss_and_gradients(model, images, labels, chunk=8)
    expected_loss = F.cross_entropy(model(images), labels)
    expected = torch.autograd.grad(expected_loss, list(model.parameters()))
    assert torch.allclose(loss, expected_loss.detach())
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-12)
    model.float()
    _, coarse = loss_and_gradients(model, images.float(), labels, compute=torch.bfloat16)
    norm = torch.cat([g.flatten() for g in expected]).norm()
    off = torch.cat([(a - b).flatten() for a, b in zip(coarse, expected, strict=True)]).norm()
    assert off < 0.1 * norm


def _trained_looking(shape: Shape) -> ConvNet:
    """A net whose norms have scales of both signs and shifts, as after training."""
    net = make_convnet(6, shape, 5, "gradients")
    with default_seed("norms", shape):
        for layer in net.features:
            if isinstance(layer, nn.GroupNorm):
                nn.init.normal_(layer.weight)
                nn.init.normal_(layer.bias)
    return net


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 16, 16), (1, 18, 18)])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_float32_is_near_the_plain_net_in_float64(shape: Shape, scale: float) -> None:
    net = _trained_looking(shape)
    exact = copy.deepcopy(net).double()
    x = torch.randn(7, *shape, generator=torch_generator("x")) * scale + 0.3
    y = torch.randint(0, 5, (7,), generator=torch_generator("y"))
    expected = exact(x.double())
    torch.testing.assert_close(
        logits(net, x, chunk=3), expected.detach().float(), rtol=1e-4, atol=1e-4
    )
    gradients = torch.autograd.grad(F.cross_entropy(expected, y), list(exact.parameters()))
    loss, found = loss_and_gradients(net, x, y, chunk=3)
    torch.testing.assert_close(loss, F.cross_entropy(expected, y).detach().float())
    for weight, ours, theirs in zip(net.parameters(), found, gradients, strict=True):
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-3, atol=2e-5)
        assert ours.stride() == weight.stride()  # or a fused optimiser is not at its fastest
        assert not ours.requires_grad


@pytest.mark.parametrize("kind", ["black", "flat", "one pixel", "stripes"])
def test_images_without_variance(kind: str) -> None:
    net = _trained_looking((1, 28, 28))
    x = torch.full((2, 1, 28, 28), {"black": 0.0, "flat": 3.0}.get(kind, -0.42))
    if kind == "one pixel":
        x[:, :, 3, 4] = 2.8
    if kind == "stripes":
        x[:, :, ::2] = 2.8
    torch.testing.assert_close(logits(net, x), net(x).detach(), rtol=1e-3, atol=1e-3)


def test_logits_keep_nothing_and_leave_images_alone() -> None:
    x = torch.randn(9, 12, generator=torch_generator("x"))
    before = x.clone()
    with default_seed("relu first"):
        net = nn.Sequential(nn.ReLU(), nn.Linear(12, 3))
    found = logits(net, x, chunk=4)
    assert torch.equal(x, before)
    assert not found.requires_grad
    torch.testing.assert_close(found, net(x).detach())
    with torch.inference_mode():
        assert torch.equal(logits(net, x, chunk=4), found)


def test_other_nets_run_as_they_are() -> None:
    x = torch.randn(4, 1, 28, 28, generator=torch_generator("x"))
    with default_seed("lenet"):
        net = classifier("lenet", (1, 28, 28), 3)
    assert torch.equal(logits(net, x), net(x).detach())


def test_a_net_that_is_no_sequence_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[nn.Module] = []
    trace = fx.Tracer.trace

    def counted(tracer: fx.Tracer, root: nn.Module) -> fx.Graph:
        traced.append(root)
        return trace(tracer, root)

    monkeypatch.setattr(fx.Tracer, "trace", counted)
    x = torch.randn(4, 1, 28, 28, generator=torch_generator("x"))
    nets = [PoolNet(2, 3, 28), PoolNet(2, 3, 28)]
    for net in nets * 2:
        logits(net, x)
    assert traced == nets


def test_other_nets_compute_coarsely_under_autocast() -> None:
    x, y = torch.randn(8, 1, 28, 28, generator=torch_generator("x")), torch.arange(8) % 3
    with default_seed("lenet"):
        net = classifier("lenet", (1, 28, 28), 3)
    loss, exact = loss_and_gradients(net, x, y)
    near, coarse = loss_and_gradients(net, x, y, compute=torch.bfloat16)
    assert near.dtype == torch.float32
    assert near != loss
    torch.testing.assert_close(near, loss, rtol=0.02, atol=0.02)
    for rough, fine in zip(coarse, exact, strict=True):
        assert rough.dtype == torch.float32
        assert (rough - fine).norm() < 0.3 * fine.norm()


def test_other_devices_run_the_plain_net(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("hand-written layers are for a CPU")

    monkeypatch.setattr(gradients, "LayerSequence", refuse)
    net = make_convnet(4, (1, 28, 28), 3, 0).to("meta")
    x, y = torch.empty(5, 1, 28, 28, device="meta"), torch.zeros(5, device="meta").long()
    assert logits(net, x).shape == (5, 3)
    _, found = loss_and_gradients(net, x, y)
    assert [g.shape for g in found] == [p.shape for p in net.parameters()]
