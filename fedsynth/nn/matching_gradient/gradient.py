"""The gradient at images of a distance to a given gradient: by hand, or by autograd twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsynth.nn.matching_gradient.first_block import FirstBlock
from fedsynth.nn.matching_gradient.inner_block import InnerBlock
from fedsynth.nn.matching_gradient.network import Network, read_network
from fedsynth.nn.per_example.layers import add
from fedsynth.nn.per_example.sequential import UnsupportedModel

Distance = Callable[[Sequence[Tensor]], Tensor]
"""A number from the gradients of the weights of two or more dimensions, in the order of
`model.parameters()`. The gradients of biases and norms do not take part."""

CHUNK_FLOATS = 1 << 22  # of the first activation of the images that are processed together


def matching_gradient(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    distance: Distance,
    *,
    compute: torch.dtype | None = None,
) -> Tensor:
    """The gradient at the images of `distance(gradient of the mean cross-entropy on them)`.

    Args:
        model: The network; any works, blocks of [convolution, instance norm, ReLU, mean pool] and
            a linear layer are fast on a CPU.
        images: Its inputs, [n, c, h, w].
        labels: Class indices, [n].
        distance: A differentiable function of the gradients.
        compute: Type of convolutions and products of the fast form, by default that of the weights.

    Returns:
        A tensor of the shape and type of `images`.
    """
    if images.device.type == "cpu":
        try:
            net = read_network(model, images.shape)
        except UnsupportedModel:
            pass
        else:
            return _by_hand(net, images, labels, distance, compute or net.head.weight.dtype)
    return by_autograd(model, images, labels, distance)


def by_autograd(model: nn.Module, images: Tensor, labels: Tensor, distance: Distance) -> Tensor:
    """`matching_gradient` by automatic differentiation twice."""
    leaf = images.detach().requires_grad_()
    weights = [p for p in model.parameters() if p.dim() >= 2]
    loss = F.cross_entropy(model(leaf), labels)
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    (result,) = torch.autograd.grad(distance(gradients), leaf)
    return result


@torch.no_grad()
def _by_hand(
    net: Network, images: Tensor, labels: Tensor, distance: Distance, compute: torch.dtype
) -> Tensor:
    height, width = net.blocks[0].sides(*images.shape[2:])
    count = max(1, CHUNK_FLOATS // (net.blocks[0].convolution.out_channels * height * width))
    chunks = zip(images.split(count), labels.split(count), strict=True)
    passes = [_Pass(net, x, y, compute) for x, y in chunks]
    per_pass = zip(*(one.gradients(len(images)) for one in passes), strict=True)
    gradients = [add(parts).requires_grad_() for parts in per_pass]
    with torch.enable_grad():
        along = torch.autograd.grad(distance(gradients), gradients)
    return torch.cat([one.derivative(along) for one in passes])


class _Pass:
    """The passes over some of the images."""

    def __init__(self, net: Network, images: Tensor, labels: Tensor, compute: torch.dtype) -> None:
        first, *rest = net.blocks
        self.first, self.rest = FirstBlock(first, compute), [InnerBlock(b, compute) for b in rest]
        self.images, self.labels = images, labels
        head = net.head
        self.matrix = head.weight.detach()
        self.bias = None if head.bias is None else head.bias.detach()

    def gradients(self, records: int) -> list[Tensor]:
        """The gradients of the network's weights, of the mean loss over this many images: a forward
        and a backward pass."""
        self.records = records
        x = self.first.forward(self.images)
        for block in self.rest:
            x = block.forward(x)
        self.shape = x.shape  # [n, h, w, c]
        self.flat = _flat(x)
        self.softmax = F.linear(self.flat, self.matrix, self.bias).softmax(1)
        self.at_logits = self.softmax.clone()
        self.at_logits[torch.arange(len(self.labels)), self.labels] -= 1
        self.at_logits /= self.records
        g = self._planes(self.at_logits @ self.matrix)
        totals = [self.at_logits.t() @ self.flat]
        for block in reversed(self.rest):
            g, total = block.backward(g)
            totals.append(total)
        totals.append(self.first.backward(g))
        return totals[::-1]

    def derivative(self, along: Sequence[Tensor]) -> Tensor:
        """The derivative of the gradient at the images when the weights move along these."""
        x = self.first.forward_along(along[0])
        for block, v in zip(self.rest, along[1:-1], strict=True):
            x = block.forward_along(x, v)
        moved = F.linear(_flat(x), self.matrix) + F.linear(self.flat, along[-1])
        moved -= (self.softmax * moved).sum(1, keepdim=True)
        at_logits = self.softmax * moved / self.records
        g = self._planes(at_logits @ self.matrix + self.at_logits @ along[-1])
        for block in reversed(self.rest):
            g = block.backward_along(g)
        return self.first.backward_along(g)

    def _planes(self, flat: Tensor) -> Tensor:
        n, h, w, c = self.shape
        return flat.view(n, c, h, w).permute(0, 2, 3, 1).contiguous()


def _flat(x: Tensor) -> Tensor:
    """Channels last to rows in the order of `nn.Flatten`."""
    return x.permute(0, 3, 1, 2).flatten(1)
