"""Networks of the Wasserstein GAN of linear layers: ranges, and scores of single rows."""

from __future__ import annotations

import torch

from fedsynth.core.randomness import default_seed
from fedsynth.nn.gan.wasserstein_mlp import (
    WassersteinGenerator,
    critic_rows,
    wasserstein_critic,
)


def test_images_lie_between_0_and_1_and_depend_on_no_other_image_when_drawn() -> None:
    with default_seed("generator"):
        net = WassersteinGenerator(5, (1, 4, 4), (8, 16)).eval()
        latents, labels = torch.randn(6, 5), torch.zeros(6).long()
    images = net(latents, labels)
    assert images.shape == (6, 1, 4, 4)
    assert ((images > 0) & (images < 1)).all()
    torch.testing.assert_close(net(latents[2:3], labels[2:3]), images[2:3])


def test_the_critic_sees_pixels_from_minus_1_to_1_and_scores_each_row_alone() -> None:
    with default_seed("critic"):
        net = wasserstein_critic(16, (8, 4))
        images = torch.rand(5, 1, 4, 4)
    rows = critic_rows(images)
    assert critic_rows(torch.tensor([[[[0.0, 0.5, 1.0]]]])).tolist() == [[-1.0, 0.0, 1.0]]
    torch.testing.assert_close(net(rows)[3:4], net(rows[3:4]))
