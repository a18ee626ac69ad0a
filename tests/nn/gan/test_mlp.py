"""Linear generators and discriminators: conditioning on labels, and scores of single rows."""

from __future__ import annotations

import torch

from fedsynth.core.randomness import default_seed
from fedsynth.nn.gan.mlp import MLPGenerator, mlp_discriminator, rows_with_labels

LATENTS = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


def test_labels_condition_the_images_where_there_are_several_classes() -> None:
    for classes in (1, 3):
        with default_seed("generator", classes):
            net = MLPGenerator(5, classes, (1, 4, 4), (8,))
        images = net(LATENTS, torch.zeros(4).long())
        assert images.shape == (4, 1, 4, 4)
        assert ((images > 0) & (images < 1)).all()
        others = net(LATENTS, torch.full((4,), classes - 1))
        assert torch.equal(images, others) == (classes == 1)


def test_the_score_of_a_row_depends_on_that_row_alone() -> None:
    with default_seed("discriminator"):
        net = mlp_discriminator(16 + 3, (8, 8))
    rows = rows_with_labels(torch.rand(4, 1, 4, 4), torch.tensor([0, 1, 2, 0]), 3)
    assert rows[:, 16:].argmax(1).tolist() == [0, 1, 2, 0]
    larger = rows_with_labels(rows[:, :16], torch.tensor([0, 1, 2, 0]), 3, label_scale=7.0)
    assert torch.equal(larger, torch.cat([rows[:, :16], 7 * rows[:, 16:]], 1))
    torch.testing.assert_close(net(rows)[2:3], net(rows[2:3]))
