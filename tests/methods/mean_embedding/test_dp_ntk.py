"""DP-NTK: tangent features against automatic differentiation."""

from __future__ import annotations

import torch
from torch import nn

from fedsynth.methods.mean_embedding.dp_ntk import TangentFeatures


def pixels(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand((n, 1, 4, 4), generator=torch.Generator().manual_seed(seed))


def test_tangent_features_are_the_gradient_of_a_network_by_autograd():
    features = TangentFeatures(16, 6, ("key",))
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 1, bias=False))
    with torch.no_grad():
        net[1].weight.copy_(features.inner[:, :-1])
        net[1].bias.copy_(features.inner[:, -1])
        net[3].weight.copy_(features.outer[None])
    for image in pixels(4):
        by_weight = torch.autograd.grad(net(image[None]).sum(), list(net.parameters()))
        weight, bias, outer = by_weight
        gradient = torch.cat([torch.cat([weight, bias[:, None]], 1).flatten(), outer.flatten()])
        found = features(image[None])[0]
        torch.testing.assert_close(found, gradient / gradient.norm(), rtol=1e-4, atol=1e-6)
