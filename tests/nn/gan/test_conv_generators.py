"""Generators: the published sizes, and nothing that lets one image see another at sampling."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.nn.gan.common import make_generator
from fedsynth.nn.gan.conv_generators import (
    ConvCondGen,
    DCGANGenerator,
    PriorGenerator,
)
from fedsynth.nn.gan.resnet_generator import ResNetGenerator

KINDS = (ConvCondGen, PriorGenerator, DCGANGenerator, ResNetGenerator)


@pytest.mark.parametrize(
    ("net", "published"),
    [
        (ConvCondGen(), 166_161),
        (ConvCondGen(classes=2), 164_561),
        (PriorGenerator(), 1_114_305),
        (DCGANGenerator(), 1_114_305),
        (ResNetGenerator(), 3_826_177),
    ],
)
def test_sizes_are_the_published_ones(net, published):
    assert sum(p.numel() for p in net.parameters()) == published


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64)])
def test_images_have_the_shape_of_the_data_and_obey_code_and_label(kind, shape):
    data = DatasetInfo("tiny", shape, 3, (0.5,) * shape[0], (0.25,) * shape[0])
    net = make_generator(kind, 5, 3, data, "key").eval()
    codes = torch.randn((4, 5), generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 2])
    images = net(codes, labels)
    assert images.shape == (4, *shape)
    torch.testing.assert_close(net(codes[2:3], labels[2:3]), images[2:3], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(net(codes, labels.roll(1)), images)
    assert not torch.allclose(net(codes.roll(1, 0), labels), images)
    if kind is not PriorGenerator:
        assert images.min() >= 0
        assert images.max() <= 1


@pytest.mark.parametrize("kind", [DCGANGenerator, PriorGenerator, ResNetGenerator])
def test_every_pixel_of_a_large_image_depends_on_the_latent_vector(kind):
    """A layer too few, or one of the wrong stride, leaves borders that are the same in all."""
    data = DatasetInfo("tiny", (3, 64, 64), 2, (0.5,) * 3, (0.25,) * 3)
    net = make_generator(partial(kind, depth=64), 6, 2, data, "key").eval()
    codes = torch.randn((40, 6), generator=torch.Generator().manual_seed(0))
    images = net(codes, torch.zeros(40, dtype=torch.int64))
    assert images.std(0).min() > 1e-4 * images.std(0).mean()


def test_the_key_alone_decides_the_first_weights():
    data = DatasetInfo("tiny", (1, 28, 28), 3, (0.5,), (0.25,))
    first, again, other = (
        make_generator(ConvCondGen, 5, 3, data, key).dense[0].weight for key in "aab"
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("kind", "side"), [(ConvCondGen, 30), (PriorGenerator, 48), (ResNetGenerator, 36)]
)
def test_sizes_that_cannot_be_drawn_are_refused(kind, side):
    with pytest.raises(UserError, match=f"{side}x{side}"):
        kind(shape=(1, side, side))
