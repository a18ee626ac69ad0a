"""The first block as one layer against autograd on its four modules, one record at a time."""

from __future__ import annotations

import pytest
import torch
from naive_layers import assert_layer_is_its_module
from torch import nn

from fedsynth.nn.per_example import fused_first_block
from fedsynth.nn.per_example.fused_first_block import FusedConvNormReluPool


@pytest.mark.parametrize("cached_floats", [1, 1 << 19])
@pytest.mark.parametrize("sizes", [(1, 2, 1), (3, 2, 1), (2, 4, 3)])
@pytest.mark.parametrize("affine", [True, False])
def test_the_block_is_its_modules(
    monkeypatch: pytest.MonkeyPatch, cached_floats, sizes, affine
) -> None:
    channels, side, padding = sizes
    monkeypatch.setattr(fused_first_block, "_CACHED_FLOATS", cached_floats)
    torch.manual_seed(0)
    convolution = nn.Conv2d(channels, 4, 2 * padding + 1, padding=padding)
    norm = nn.InstanceNorm2d(4, affine=affine)
    module = nn.Sequential(convolution, norm, nn.ReLU(), nn.AvgPool2d(side)).double()
    for weight in module.parameters():
        nn.init.normal_(weight)
    layer = FusedConvNormReluPool(convolution, norm, side, torch.float64)
    x = torch.randn(3, channels, 8, 8, dtype=torch.float64)
    assert layer.sides(x.shape) == (8, 8)
    assert_layer_is_its_module(layer, module, x, onward=False)
