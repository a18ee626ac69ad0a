"""Gradients of plain training, and logits: hand-written layers where possible, else autograd."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsynth.nn.per_example.sequential import LayerSequence, UnsupportedModel

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps outputs and labels of a batch to one loss per record, a function of that record alone."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of each record."""
    return F.cross_entropy(logits, labels, reduction="none")


def loss_and_gradients(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    loss: Loss = cross_entropy,
    compute: torch.dtype | None = None,
    chunk: int = 128,
) -> tuple[Tensor, list[Tensor]]:
    """The mean loss of a batch and its gradient, as by `loss(...).mean().backward()`.

    Not private: see `privacy.clipping` for clipped gradients. For the project's classifiers on a
    CPU about one and a half times as fast as automatic differentiation, and more than twice with
    `compute=torch.bfloat16`; any other network runs under autograd (and autocast).

    Args:
        model: The network.
        images: Its inputs, [batch, ...].
        labels: Targets of the loss, [batch] or [batch, classes].
        loss: One loss per record.
        compute: Type of matrix products and convolutions, by default that of the weights.
        chunk: Records per pass, so that activations stay in the cache.

    Returns:
        The loss, and one tensor per parameter that requires grad, in the order of
        `model.parameters()`.
    """
    layers = _layers(model, images, compute)
    if layers is None:
        weights = [p for p in model.parameters() if p.requires_grad]
        precision = torch.autocast(images.device.type, compute) if compute else nullcontext()
        with precision:
            outputs = model(images)
        mean = loss(outputs.to(weights[0].dtype), labels).mean()
        return mean.detach(), list(torch.autograd.grad(mean, weights))
    mean = layers.weights[0].new_zeros(())
    totals: dict[int, Tensor] = {}
    for x, y in zip(images.split(chunk), labels.split(chunk), strict=True):
        losses, gradient = loss_and_output_gradient(layers.forward(x), y, loss)
        layers.backward(gradient.div_(len(images)))
        mean += losses.sum() / len(images)
        for weight, part in zip(layers.weights, layers.summed_gradients(), strict=True):
            total = totals.setdefault(id(weight), part)
            if total is not part:
                total.add_(part)
    return mean, [totals[id(w)] for w in layers.parameters]


@torch.no_grad()
def logits(model: nn.Module, images: Tensor, *, chunk: int = 50) -> Tensor:
    """`model(images)` without a graph, by hand-written layers where that is faster."""
    layers = _layers(model, images)
    if layers is None:
        return model(images)
    return torch.cat([layers.forward(x, keep=False) for x in images.split(chunk)])


def _layers(
    model: nn.Module, images: Tensor, compute: torch.dtype | None = None
) -> LayerSequence | None:
    """The hand-written layers, where they exist and are faster: on a CPU."""
    weight = next(model.parameters(), None)
    if weight is None or weight.device.type != "cpu":
        return None
    try:
        return LayerSequence(model, images.shape[1:], compute or weight.dtype, summed=True)
    except UnsupportedModel:
        return None


def loss_and_output_gradient(logits: Tensor, labels: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """The loss of each record, and its gradient at the outputs of that record."""
    outputs = logits.detach().requires_grad_()
    with torch.enable_grad():
        losses = loss(outputs, labels)
        (gradient,) = torch.autograd.grad(losses.sum(), outputs)
    return losses.detach(), gradient
