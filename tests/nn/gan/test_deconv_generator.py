"""DP-Sinkhorn's generator: shapes, the pixel scale, and independent images in evaluation."""

from __future__ import annotations

import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import default_seed
from fedsynth.nn.gan.deconv_generator import DeconvGenerator


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 12)])
def test_images_have_the_shape_of_the_data(shape: tuple[int, int, int]) -> None:
    with default_seed("deconv"):
        net = DeconvGenerator(6, 3, shape, depth=8).eval()
    latents = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 2])
    images = net(latents, labels)
    assert images.shape == (4, *shape)
    assert ((images >= 0) & (images <= 1)).all()
    torch.testing.assert_close(net(latents[1:2], labels[1:2]), images[1:2], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(net(latents, labels.roll(1)), images)


def test_sides_that_are_no_multiple_of_four_are_refused() -> None:
    with pytest.raises(UserError, match="30x30"):
        DeconvGenerator(shape=(1, 30, 30))
