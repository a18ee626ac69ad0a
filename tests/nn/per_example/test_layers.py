"""Each hand-written layer against autograd on its module, one record at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from naive_layers import assert_layer_is_its_module
from torch import nn

from fedsynth.nn.per_example import layers
from fedsynth.nn.per_example.layers import Layer

DOUBLE = torch.float64
CASES: list[tuple[Callable[[], nn.Module], Callable[[nn.Module], Layer]]] = [
    (lambda: nn.Conv2d(4, 3, 3, padding=1), lambda m: layers.Convolution(m, DOUBLE)),
    (lambda: nn.Conv2d(4, 3, 3, stride=2), lambda m: layers.Convolution(m, DOUBLE)),
    (lambda: nn.Conv2d(4, 3, 3, dilation=2, bias=False), lambda m: layers.Convolution(m, DOUBLE)),
    (lambda: nn.GroupNorm(2, 4), layers.Norm),
    (lambda: nn.InstanceNorm2d(4, affine=True), layers.Norm),
    (lambda: nn.InstanceNorm2d(4), layers.Norm),
    (nn.ReLU, lambda _: layers.Relu()),
    (lambda: nn.AvgPool2d(2), layers.AveragePool),
    (lambda: nn.AvgPool2d(3), layers.AveragePool),
    (lambda: nn.MaxPool2d(2), layers.MaxPool),
    (lambda: nn.MaxPool2d(3, stride=2), layers.MaxPool),
    (nn.Flatten, lambda _: layers.Flatten()),
]


@pytest.mark.parametrize(("make", "read"), CASES)
def test_a_layer_is_its_module(make, read) -> None:
    torch.manual_seed(0)
    module = make().double()
    for weight in module.parameters():
        nn.init.normal_(weight)
    assert_layer_is_its_module(read(module), module, torch.randn(3, 4, 8, 8, dtype=DOUBLE))


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_is_its_module(bias: bool) -> None:
    torch.manual_seed(1)
    module = nn.Linear(5, 4, bias=bias).double()
    layer = layers.Linear(module)
    x, g = torch.randn(3, 5, dtype=DOUBLE), torch.randn(3, 4, dtype=DOUBLE)
    torch.testing.assert_close(layer.forward(x), module(x))
    torch.testing.assert_close(layer.backward(g, onward=True), g @ module.weight)
    expected = [torch.einsum("ni,nj->nij", g, x).flatten(1), *([g] if bias else [])]
    found = [gradient.rows() for gradient in layer.per_example_gradients()]
    torch.testing.assert_close(found, expected)


def test_a_bias_that_a_norm_cancels_has_no_gradient() -> None:
    module = nn.Conv2d(1, 2, 3)
    layer = layers.Convolution(module, torch.float32, bias_cancels=True)
    x = torch.randn(2, 1, 5, 5)
    torch.testing.assert_close(layer.forward(x), module(x) - module.bias[:, None, None])
    layer.backward(torch.randn(2, 2, 3, 3), onward=False)
    assert not layer.per_example_gradients()[1].rows().any()
