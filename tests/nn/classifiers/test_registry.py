"""The classifiers have the published sizes, and unknown names are refused with a suggestion."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import default_seed
from fedsynth.nn.classifiers.registry import CLASSIFIERS, classifier

PUBLISHED = {  # ten classes, 28x28x1
    "convnet": 317_706,
    "poolnet": 910_218,  # 9w + 2w + 18w^2 + 4w + 36w^2 + 4w + 18w * 10 + 10
    "lenet": 61_706,
    "alexnet": 1_865_802,
    "vgg11": 9_229_962,
    "resnet18": 11_172_810,
    "mlp": 118_282,
    "keras_cnn": 515_146,
    "opacus_cnn": 26_010,
    "linear": 7_850,
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
def test_the_logits_of_an_image_depend_on_that_image_alone(
    name: str, shape: tuple[int, int, int], classes: int
) -> None:
    with default_seed("zoo", name):
        net = classifier(name, shape, classes, width=8).eval()
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    together = net(x)
    assert together.shape == (3, classes)
    torch.testing.assert_close(together[1:2], net(x[1:2]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_large_square_images(name: str) -> None:
    """Images of 64x64, as those of CelebA and Places, are four cells, each of which counts."""
    with default_seed("large", name):
        net = classifier(name, (3, 64, 64), 2, width=8).eval()
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    scores = net(x)
    assert scores.shape == (2, 2)
    (gradient,) = torch.autograd.grad(scores[:, 0].sum(), x)
    quarters = gradient.abs().unflatten(2, (2, 32)).unflatten(4, (2, 32)).amax((0, 1, 3, 5))
    assert (quarters > 0).all()


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'resnet19'.*Did you mean 'resnet18'"):
        classifier("resnet19", (1, 28, 28), 10)


@pytest.mark.parametrize("shape", [(1, 20, 20), (1, 28, 32)])
def test_unsupported_shapes_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(UserError, match=r"'lenet'.*side 28"):
        classifier("lenet", shape, 10)


def test_one_classifier_imports_no_other() -> None:
    code = """
import sys
from fedsynth.nn.classifiers.registry import classifier
classifier("lenet", (1, 28, 28), 10)
print(*sorted(m for m in sys.modules if m.startswith("fedsynth.nn.classifiers.")))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = [module.removeprefix("fedsynth.nn.classifiers.") for module in out.stdout.split()]
    assert imported == ["common", "lenet", "registry"]
