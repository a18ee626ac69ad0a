"""A stack of perceptrons is as many perceptrons: the same scores, the same learning."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from fedsynth.core.randomness import default_seed
from fedsynth.nn.ensembles.mlp import MLPStack

NETS, ROWS, INPUTS, HIDDEN = 3, 5, 7, 4


def alone(stack: MLPStack, index: int) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))
    first, second = net[0], net[2]
    with torch.no_grad():
        first.weight.copy_(stack.first[index].t())
        first.bias.copy_(stack.first_bias[index, 0])
        second.weight.copy_(stack.second[index].t())
        second.bias.copy_(stack.second_bias[index, 0])
    return net


def test_every_net_scores_and_learns_as_if_it_were_alone():
    with default_seed("stack"):
        stack = MLPStack(NETS, INPUTS, HIDDEN)
    singles = [alone(stack, i) for i in range(NETS)]
    rows = torch.randn((NETS, ROWS, INPUTS), generator=torch.Generator().manual_seed(0))
    for i, net in enumerate(singles):
        torch.testing.assert_close(stack(rows)[i], net(rows[i]).squeeze(1))
    together = torch.optim.Adam(stack.parameters(), 0.01)
    each = [torch.optim.Adam(net.parameters(), 0.01) for net in singles]
    for _ in range(3):
        together.zero_grad()
        F.softplus(stack(rows)).mean(1).sum().backward()
        together.step()
        for i, (net, adam) in enumerate(zip(singles, each, strict=True)):
            adam.zero_grad()
            F.softplus(net(rows[i])).mean().backward()
            adam.step()
    for i, net in enumerate(singles):
        torch.testing.assert_close(stack.first[i].t(), net[0].weight, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(stack(rows)[i], net(rows[i]).squeeze(1), rtol=1e-4, atol=1e-5)
