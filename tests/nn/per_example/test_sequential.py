"""Networks that are read as layer sequences: never one whose forward does anything else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedsynth.nn.classifiers.convnet import ConvNet, make_convnet
from fedsynth.nn.per_example.fused_first_block import FusedConvNormReluPool
from fedsynth.nn.per_example.layers import Convolution
from fedsynth.nn.per_example.sequential import LayerSequence, UnsupportedModel

SHAPE = (1, 8, 8)


class Doubled(ConvNet):
    """Inherits the order of the layers but does more than call them."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Twice(nn.Module):
    """Uses one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.layer = nn.Flatten(), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(self.flatten(x)))


class Switching(nn.Module):
    """Decides by the data."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1)) if x.sum() > 0 else self.layer(-x.flatten(1))


def _hooked() -> nn.Module:
    model = ConvNet(4, 10, SHAPE)
    model.register_forward_hook(lambda *call: 3 * call[-1])
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Doubled(4, 10, SHAPE), "more than call layers"),
        (Twice, "shared"),
        (Switching, "traced"),
        (_hooked, "hooks"),
        (lambda: nn.Sequential(nn.Linear(8, 4), nn.Flatten(), nn.Linear(32, 3)), "unusual shape"),
        (lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten()), "no hand-written"),
        (lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding="same"), nn.Flatten()), "no hand"),
        (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.AvgPool2d(3, 2), nn.Flatten()), "no hand"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Dropout()), "no hand-written"),
    ],
)
def test_what_is_not_a_chain_is_not_taken_for_one(
    make: Callable[[], nn.Module], reason: str
) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        LayerSequence(make(), SHAPE)


def test_logits_are_those_of_the_network() -> None:
    x = torch.randn(5, *SHAPE, generator=torch.Generator().manual_seed(0))
    model = make_convnet(8, SHAPE, 10, 0)
    chain = LayerSequence(model, SHAPE)
    assert torch.allclose(chain.forward(x), model(x), atol=1e-5)


def test_the_first_block_is_one_layer_only_where_pools_are_whole() -> None:
    def layers(side: int) -> list[type]:
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.GroupNorm(4, 4), nn.ReLU(), nn.AvgPool2d(side), nn.Flatten()
        )
        return [type(layer) for layer in LayerSequence(model, SHAPE).layers]

    assert layers(3)[0] is FusedConvNormReluPool
    assert layers(4)[0] is Convolution
