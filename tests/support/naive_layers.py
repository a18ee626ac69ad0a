"""Forward, backward and per-record gradients of a module by autograd, one record at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedsynth.nn.per_example.layers import Layer


def assert_layer_is_its_module(
    layer: Layer, module: nn.Module, x: Tensor, *, onward: bool = True
) -> None:
    """Compare a hand-written layer with the module, for a random gradient at the output."""
    rows = [record[None].clone().requires_grad_() for record in x]
    outputs = [module(row) for row in rows]
    g = torch.randn(len(x), *outputs[0].shape[1:], dtype=x.dtype)
    torch.testing.assert_close(layer.forward(x.clone()), torch.cat(outputs))
    back = layer.backward(g.clone(), onward)
    weights = list(module.parameters())
    found = [gradient.rows() for gradient in layer.per_example_gradients()]
    summed = layer.summed_gradients()
    assert len(found) == len(weights)
    for number, (row, output) in enumerate(zip(rows, outputs, strict=True)):
        expected, *of_weights = torch.autograd.grad(output, [row, *weights], g[number : number + 1])
        if onward:
            torch.testing.assert_close(back[number : number + 1], expected)
        for gradients, of_weight in zip(found, of_weights, strict=True):
            torch.testing.assert_close(gradients[number], of_weight.flatten())
    for gradients, total, weight in zip(found, summed, weights, strict=True):
        torch.testing.assert_close(total, gradients.sum(0).view_as(weight))
