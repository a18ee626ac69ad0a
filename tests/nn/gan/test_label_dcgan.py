"""DataLens's generator: its published size, its labels and its randomness."""

from __future__ import annotations

import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.nn.gan.label_dcgan import LabelDCGAN, make_label_dcgan

DATA = DatasetInfo("tiny", (3, 16, 16), 4, (0.5,) * 3, (0.25,) * 3)


@pytest.mark.parametrize(("code", "parameters"), [(50, 7_014_011), (64, 7_028_347)])
def test_it_has_as_many_parameters_as_published(code, parameters):
    with torch.device("meta"):
        net = LabelDCGAN(code)
    assert sum(p.numel() for p in net.parameters()) == parameters


def test_images_are_pixels_that_depend_on_code_and_label():
    net = make_label_dcgan(5, 4, DATA, 8, 4, "key")
    codes = torch.rand(6, 5, generator=torch.Generator().manual_seed(0)) * 2 - 1
    labels = torch.arange(6) % 4
    images = net(codes, labels).detach()
    assert images.shape == (6, 3, 16, 16)
    assert 0 < float(images.min()) < float(images.max()) < 1
    assert not torch.equal(net(codes, labels.flip(0)), images)
    assert not torch.equal(net(codes.flip(0), labels), images)


def test_it_is_the_same_in_training_and_in_evaluation():
    net = make_label_dcgan(5, 4, DATA, 8, 4, "key")
    codes, labels = torch.ones(3, 5) * torch.tensor([[0.1], [0.2], [-0.3]]), torch.arange(3)
    assert torch.equal(net.train()(codes, labels), net.eval()(codes, labels))


def test_weights_depend_on_the_key_alone():
    state = torch.get_rng_state()
    nets = [make_label_dcgan(5, 4, DATA, 8, 4, key) for key in ("a", "a", "b")]
    assert torch.equal(torch.get_rng_state(), state)
    first, again, other = (net.first.weight for net in nets)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_odd_sizes_are_refused():
    with pytest.raises(UserError, match="multiples of 4"):
        LabelDCGAN(shape=(1, 30, 30))
