"""Many small perceptrons side by side, trained on batches of their own by batched products."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MLPStack(nn.Module):
    """`nets` perceptrons with one hidden ReLU layer: rows [nets, n, inputs] to scores [nets, n].

    Claim: each network is a function of its own batches alone, as no operation combines rows or
    weights of two networks; the gradient of a sum of losses is therefore that of each network.
    Weights are initialised normal with variance 2 / inputs, biases zero."""

    def __init__(self, nets: int, inputs: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(nets, inputs, hidden) * math.sqrt(2 / inputs))
        self.first_bias = nn.Parameter(torch.zeros(nets, 1, hidden))
        self.second = nn.Parameter(torch.randn(nets, hidden, 1) * math.sqrt(2 / hidden))
        self.second_bias = nn.Parameter(torch.zeros(nets, 1, 1))

    def forward(self, rows: Tensor) -> Tensor:
        """The score of each row by the network it belongs to."""
        h = F.relu(torch.baddbmm(self.first_bias, rows, self.first))
        return torch.baddbmm(self.second_bias, h, self.second).squeeze(2)
