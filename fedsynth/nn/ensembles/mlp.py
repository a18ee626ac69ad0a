"""Many small perceptrons side by side: each learns from its own batch, by one product for all."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MLPStack(nn.Module):
    """`nets` perceptrons with one hidden layer of rectifiers: rows [nets, n, inputs] in, scores
    [nets, n] out. No net sees another's rows or weights, so each is a function of its own batches
    alone, and the gradient of a sum of losses is every net's own. Weights start normal, of variance
    2 / inputs, and biases at zero."""

    def __init__(self, nets: int, inputs: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(nets, inputs, hidden) * math.sqrt(2 / inputs))
        self.first_bias = nn.Parameter(torch.zeros(nets, 1, hidden))
        self.second = nn.Parameter(torch.randn(nets, hidden, 1) * math.sqrt(2 / hidden))
        self.second_bias = nn.Parameter(torch.zeros(nets, 1, 1))

    def forward(self, rows: Tensor) -> Tensor:
        """The score of each row by its own net."""
        h = F.relu(torch.baddbmm(self.first_bias, rows, self.first))
        return torch.baddbmm(self.second_bias, h, self.second).squeeze(2)
