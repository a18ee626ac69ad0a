"""The classifiers have the published sizes; names nobody knows are refused helpfully."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import default_seed
from fedsynth.nn.classifiers.registry import CLASSIFIERS, KeyedDropout, classifier

PUBLISHED = {  # evaluation protocols of papers 000, 002, 003; ten classes, 28x28x1
    "convnet": 317_706,
    "poolnet": 910_218,  # this project: 9w + 2w + 18w^2 + 4w + 36w^2 + 4w + 18w * 10 + 10
    "lenet": 61_706,
    "alexnet": 1_865_802,
    "vgg11": 9_229_962,
    "resnet18": 11_172_810,
    "mlp": 118_282,
    "keras_cnn": 515_146,  # paper 004
}


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_every_classifier_has_a_published_count() -> None:
    assert set(PUBLISHED) == set(CLASSIFIERS)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_parameter_count(name: str) -> None:
    assert parameters(classifier(name, (1, 28, 28), 10)) == PUBLISHED[name]


def test_convnet_on_colour() -> None:
    assert parameters(classifier("convnet", (3, 32, 32), 10)) == 320_010


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize(("shape", "classes"), [((1, 28, 28), 4), ((3, 32, 32), 10)])
def test_images_do_not_influence_one_another(
    name: str, shape: tuple[int, int, int], classes: int
) -> None:
    with default_seed("zoo", name):
        net = classifier(name, shape, classes, width=8).eval()
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    together = net(x)
    assert together.shape == (3, classes)
    torch.testing.assert_close(together[1:2], net(x[1:2]), rtol=1e-4, atol=1e-5)


def test_large_square_images() -> None:
    for name in ("alexnet", "vgg11", "resnet18", "mlp"):
        assert classifier(name, (3, 64, 64), 2)(torch.zeros(1, 3, 64, 64)).shape == (1, 2)


def test_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'resnet19'.*Did you mean 'resnet18'"):
        classifier("resnet19", (1, 28, 28), 10)


@pytest.mark.parametrize("shape", [(1, 20, 20), (1, 28, 32)])
def test_shape_a_net_cannot_take(shape: tuple[int, int, int]) -> None:
    with pytest.raises(UserError, match=r"'lenet'.*side 28"):
        classifier("lenet", shape, 10)


def test_dropout_depends_on_the_key_of_the_net_alone() -> None:
    x = torch.ones(4, 1, 28, 28)

    def outputs(key: str) -> list[torch.Tensor]:
        with default_seed(key):
            net = classifier("keras_cnn", (1, 28, 28), 10).train()
        torch.rand(3)  # the global generator plays no part
        return [net(x), net(x)]

    first, again, other = outputs("a"), outputs("a"), outputs("b")
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    with default_seed("dropout"):
        layer = KeyedDropout(0.25).train()
    out = layer(torch.ones(200, 200))
    assert float((out == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert float(out.mean()) == pytest.approx(1, abs=0.03)
    assert torch.equal(layer.eval()(torch.ones(3)), torch.ones(3))
