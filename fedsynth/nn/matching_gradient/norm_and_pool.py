"""The part of a block behind its convolution: the basis of both kinds of blocks."""

from __future__ import annotations

import torch

from fedsynth.nn.matching_gradient.network import Block


class NormAndPool:
    """Normalisation per image and channel, ReLU and mean pool, on activations [n, positions, c].

    With z the convolution, m and rstd its mean and inverse deviation, n = (z - m) rstd the
    normalised values and g the gradient at n, instance norm gives

        at z:  rstd (g - mean(g) - n mean(n g)).

    A dot stands for the derivative along the direction:

        n' = rstd (z' - mean(z') - n s),  rstd' = -rstd^2 s,  with s = mean(n z').
    """

    def __init__(self, block: Block, compute: torch.dtype) -> None:
        norm = block.norm
        self.eps, self.side, self.compute = norm.eps, block.side, compute
        kernel = block.convolution.weight.detach()
        self.scale = kernel.new_ones(len(kernel)) if norm.weight is None else norm.weight.detach()
        self.shift = kernel.new_zeros(len(kernel)) if norm.bias is None else norm.bias.detach()
        self.kernel, self.padding = kernel, block.padding
        self.block = block
