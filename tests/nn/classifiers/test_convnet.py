"""The ConvNet: its published sizes, its features, and weights that depend on the key alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.nn.classifiers.convnet import ConvNet, RedrawnConvNet, make_convnet


@pytest.mark.parametrize(
    ("width", "classes", "shape", "expected"),
    [
        (128, 10, (1, 28, 28), 317_706),
        (128, 10, (3, 32, 32), 320_010),
        (128, 2, (1, 28, 28), 317_706 - 8 * 2049),
        (128, 6, (1, 28, 28), 317_706 - 4 * 2049),
    ],
)
def test_parameter_counts(
    width: int, classes: int, shape: tuple[int, int, int], expected: int
) -> None:
    model = ConvNet(width, classes, shape)
    assert sum(p.numel() for p in model.parameters()) == expected
    x = torch.randn(3, *shape)
    assert model(x).shape == (3, classes)
    assert model.embed(x).shape == (3, 2048)
    assert torch.equal(model.classifier(model.embed(x)), model(x))


def test_records_are_normalised_one_by_one() -> None:
    model = ConvNet(8)
    x = torch.randn(4, 1, 28, 28)
    assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-5)
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())


@pytest.fixture
def info() -> DatasetInfo:
    return DatasetInfo("digits", (1, 28, 28), 10, (0.5,), (0.5,))


def test_weights_depend_on_the_key_and_on_nothing_else(info: DatasetInfo) -> None:
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    one = make_convnet(8, info, 10, 7, "psg", 3)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    same = make_convnet(8, info.shape, 10, 7, "psg", 3)
    other = make_convnet(8, info, 10, 7, "psg", 4)
    pairs = list(zip(one.parameters(), same.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(one.classifier.weight, other.classifier.weight)


@pytest.mark.parametrize("shape", [(1, 28, 27), (1, 4, 4)])
def test_shapes_it_cannot_take_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(UserError, match="square"):
        ConvNet(8, 10, shape)


def test_weights_drawn_anew_are_those_of_a_new_network(info: DatasetInfo) -> None:
    """Whatever was trained into the network before, and without new memory."""
    networks = RedrawnConvNet(8, info, 10, "cpu")
    first = networks.draw(7, "psg", 3)
    memory = [parameter.data_ptr() for parameter in first.parameters()]
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(1)
    again = networks.draw(7, "psg", 4)
    assert [parameter.data_ptr() for parameter in again.parameters()] == memory
    new = make_convnet(8, info, 10, 7, "psg", 4).state_dict()
    found = again.state_dict()
    assert found.keys() == new.keys()
    assert all(torch.equal(found[name], new[name]) for name in new)
    assert all(parameter.requires_grad for parameter in again.parameters())
