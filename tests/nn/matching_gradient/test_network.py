"""Networks that are read as blocks: those that are not are refused, with the reason."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsynth.nn.classifiers.convnet import ConvNet
from fedsynth.nn.matching_gradient.network import read_network
from fedsynth.nn.per_example.sequential import UnsupportedModel

SHAPE = torch.Size((5, 1, 8, 8))


def block(channels: int, norm: nn.Module | None = None, **convolution: int) -> list[nn.Module]:
    first = nn.Conv2d(channels, 4, 3, **{"padding": 1, **convolution})
    return [first, norm or nn.GroupNorm(4, 4), nn.ReLU(), nn.AvgPool2d(2)]


def test_blocks_and_weights_stand_in_order() -> None:
    net = nn.Sequential(*block(1), *block(4, nn.InstanceNorm2d(4)), nn.Flatten(), nn.Linear(16, 3))
    read = read_network(net, SHAPE)
    assert [each.convolution for each in read.blocks] == [net[0], net[4]]
    assert [each.sides(8, 8) for each in read.blocks] == [(8, 8), (8, 8)]
    expected = [p for p in net.parameters() if p.dim() >= 2]
    assert all(a is b for a, b in zip(read.weights, expected, strict=True))
    assert len(read_network(ConvNet(4, 10, (1, 8, 8)), SHAPE).blocks) == 3


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (block(1), "does not end in"),
        ([nn.Flatten(), nn.Linear(64, 3)], "does not end in"),
        (block(1)[::-1], "no blocks of convolution"),
        (block(1)[:3], "no blocks of convolution"),
        (block(1, stride=2), "a stride or a dilation"),
        (block(1, dilation=2), "a stride or a dilation"),
        (block(1, nn.GroupNorm(2, 4)), "mixes channels"),
        (block(1, padding=0) + block(4), "no multiple of the pool's window"),
    ],
)
def test_others_are_refused(layers: list[nn.Module], reason: str) -> None:
    ends = () if reason == "does not end in" else (nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(UnsupportedModel, match=reason):
        read_network(nn.Sequential(*layers, *ends), SHAPE)
