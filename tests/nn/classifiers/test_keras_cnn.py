"""The dropout of keras_cnn draws from a generator of its own, at the stated probability."""

from __future__ import annotations

import pytest
import torch

from fedsynth.core.randomness import default_seed
from fedsynth.nn.classifiers.keras_cnn import KeyedDropout
from fedsynth.nn.classifiers.registry import classifier


def test_dropout_depends_on_the_key_of_the_network_alone() -> None:
    x = torch.ones(4, 1, 28, 28)

    def outputs(key: str) -> list[torch.Tensor]:
        with default_seed(key):
            net = classifier("keras_cnn", (1, 28, 28), 10).train()
        torch.rand(3)  # must not matter
        return [net(x), net(x)]

    first, again, other = outputs("a"), outputs("a"), outputs("b")
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])


def test_dropout_keeps_the_mean_and_the_probability() -> None:
    with default_seed("dropout"):
        layer = KeyedDropout(0.25).train()
    out = layer(torch.ones(200, 200))
    assert float((out == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert float(out.mean()) == pytest.approx(1, abs=0.03)
    assert torch.equal(layer.eval()(torch.ones(3)), torch.ones(3))
