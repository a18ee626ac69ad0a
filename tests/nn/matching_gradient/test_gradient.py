"""The gradient of a matching distance at the images, against automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from fedsynth.nn.classifiers.convnet import ConvNet, make_convnet
from fedsynth.nn.matching_gradient import gradient as matching
from fedsynth.nn.matching_gradient.gradient import by_autograd, matching_gradient

SHAPES = [(1, 28, 28), (3, 32, 32), (2, 8, 8)]


def net_and_data(
    shape: tuple[int, int, int], width: int = 6, dtype: torch.dtype = torch.float64
) -> tuple[ConvNet, Tensor, Tensor]:
    """A net whose norms are not at their start values, so that nothing cancels by chance."""
    generator = torch.Generator().manual_seed(1)
    net = make_convnet(width, shape, 4, "matching", shape).to(dtype)
    with torch.no_grad():
        for weight in net.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.3)
    images = torch.randn((7, *shape), generator=generator, dtype=torch.float64)
    return net, images.to(dtype), torch.arange(7) % 4


def cosine_to(net: nn.Module) -> Callable[[Sequence[Tensor]], Tensor]:
    """A distance to a random gradient, not linear in the gradients."""
    generator = torch.Generator().manual_seed(2)
    real = [torch.randn(w.shape, generator=generator).to(w) for w in net.parameters()]
    real = [g for g in real if g.dim() >= 2]

    def distance(gradients: Sequence[Tensor]) -> Tensor:
        cosines = [
            torch.cosine_similarity(a.flatten(1), b.flatten(1)).sum()
            for a, b in zip(real, gradients, strict=True)
        ]
        return -torch.stack(cosines).sum() + gradients[0].square().sum()

    return distance


def relative_error(ours: Tensor, expected: Tensor) -> float:
    return float((ours - expected).norm() / expected.norm())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk", [1, 1 << 22])
def test_by_hand_is_by_autograd(monkeypatch: pytest.MonkeyPatch, shape, chunk) -> None:
    monkeypatch.setattr(matching, "CHUNK_FLOATS", chunk)
    net, images, labels = net_and_data(shape)
    expected = by_autograd(net, images, labels, cosine_to(net))
    monkeypatch.setattr(matching, "by_autograd", None)  # so that it cannot be what is compared
    before = images.clone()
    ours = matching_gradient(net, images, labels, cosine_to(net))
    assert relative_error(ours, expected) < 1e-12
    assert torch.equal(images, before)


def test_it_is_the_slope_of_the_distance() -> None:
    """Central differences of the distance itself along random changes of the images."""
    net, images, labels = net_and_data((1, 28, 28))
    distance = cosine_to(net)

    def value(at: Tensor) -> float:
        loss = nn.functional.cross_entropy(net(at), labels)
        weights = [w for w in net.parameters() if w.dim() >= 2]
        return float(distance(torch.autograd.grad(loss, weights)))

    gradient = matching_gradient(net, images, labels, distance)
    generator = torch.Generator().manual_seed(3)
    for _ in range(3):
        step = 1e-6 * torch.randn(images.shape, generator=generator, dtype=torch.float64)
        slope = (value(images + step) - value(images - step)) / 2
        assert slope == pytest.approx(float((gradient * step).sum()), rel=1e-4)


@pytest.mark.parametrize("compute", [None, torch.bfloat16])
def test_errors_of_coarser_types(compute: torch.dtype | None) -> None:
    """float32: rounding, and few ReLUs that switch; bfloat16: no further off than autocast."""
    net, images, labels = net_and_data((1, 28, 28), 16, torch.float32)
    precise, distance = net_and_data((1, 28, 28), 16)[0], cosine_to(net)
    expected = by_autograd(precise, images.double(), labels, cosine_to(precise))
    ours = relative_error(
        matching_gradient(net, images, labels, distance, compute=compute), expected
    )
    if compute is None:
        assert ours < 1e-4
        return
    with torch.autocast("cpu", torch.bfloat16):
        theirs = relative_error(by_autograd(net, images, labels, distance), expected)
    assert 1e-4 < ours < 1.2 * theirs


class Doubled(ConvNet):
    """Inherits the order of the layers but does more than call them."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def tanh_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(2 * 36, 4))


def hooked_net() -> nn.Module:
    net = ConvNet(2, 4, (1, 8, 8))
    net.classifier.register_forward_hook(lambda _, __, output: 3 * output)
    return net


def frozen_net() -> nn.Module:
    net = ConvNet(2, 4, (1, 8, 8))
    net.classifier.bias.requires_grad_(False)
    return net


@pytest.mark.parametrize(
    "build", [lambda: Doubled(2, 4, (1, 8, 8)), tanh_net, hooked_net, frozen_net]
)
def test_other_nets_run_under_autograd(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    net = build().double()
    images, labels = torch.randn((5, 1, 8, 8), dtype=torch.float64), torch.arange(5) % 4
    ours = matching_gradient(net, images, labels, cosine_to(net))
    assert relative_error(ours, by_autograd(net, images, labels, cosine_to(net))) < 1e-12


def test_odd_planes_run_under_autograd() -> None:
    net, images, labels = net_and_data((1, 30, 30))
    ours = matching_gradient(net, images, labels, cosine_to(net))
    assert relative_error(ours, by_autograd(net, images, labels, cosine_to(net))) < 1e-12
