"""Distribution matching against a naive loop: one class after another, by autograd."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from naive import clipped_rows
from naive_matching import match_both

from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.protocols import protocol
from fedsynth.methods.dpdc.distribution_matching import (
    CondensedImages,
    DistributionConfig,
)
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.nn.transforms.augment import apply_dsa, draw_dsa

FACTS = DatasetInfo("tiny", (1, 16, 16), 5, (0.5,), (0.25,))
CFG = DistributionConfig(spc=3, width=4, image_learning_rate=0.7)
KEY = ("key",)
CLASSES = (4, 1)


def real_records(n: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return torch.rand((n, 1, 16, 16), generator=generator), torch.arange(n) % 2 * 3 + 1


def naive_loss(number, images, target, scale, *, bound):
    """The specification, line by line."""
    net = make_convnet(CFG.width, FACTS, 1, *KEY, "network", number)
    generator = torch_generator(*KEY, "augmentation", number)
    draws = [draw_dsa(generator, protocol("D").augmentations(FACTS)) for _ in CLASSES]
    loss = torch.zeros(())
    for row, params in enumerate(draws):
        part = images[row * CFG.spc : (row + 1) * CFG.spc]
        features = clipped_rows(net.embed(apply_dsa(part, params)), bound)
        loss = loss + ((scale[row] * features.sum(0) - target[row]) ** 2).sum()
    return loss


@pytest.mark.parametrize("bound", [None, 0.5, 1e6])
def test_matching_is_the_naive_loop(bound):
    condensed = CondensedImages(CFG, FACTS, CLASSES, KEY)
    targets = [
        torch.randn((2, condensed.width), generator=torch_generator("target", number))
        for number in range(8)
    ]
    images = match_both(condensed, CFG, targets, bound, partial(naive_loss, bound=bound))
    assert (images - CondensedImages(CFG, FACTS, CLASSES, KEY).images).abs().max() > 0.1
    torch.testing.assert_close(condensed.images, images, rtol=1e-3, atol=1e-4)


def test_the_rate_falls_along_a_cosine_and_stays_by_default():
    falling = replace(CFG, iterations=4, image_learning_rate_end=0.1)
    condensed = CondensedImages(falling, FACTS, CLASSES, KEY)
    middle = CFG.image_learning_rate * (0.1 + 0.9 / 2)
    assert condensed.step(0).learning_rate == CFG.image_learning_rate
    assert condensed.step(2).learning_rate == pytest.approx(middle)
    step, target = condensed.step(3), torch.ones(2, condensed.width)
    before = condensed.images.clone()
    condensed.match(step, target, torch.ones(2), None)
    torch.testing.assert_close(before - condensed.images, step.learning_rate * condensed.velocity)
    assert CFG.image_learning_rate * 0.1 < step.learning_rate < middle
    assert (
        CondensedImages(CFG, FACTS, CLASSES, KEY).step(9999).learning_rate
        == CFG.image_learning_rate
    )


def test_real_and_synthetic_images_of_a_class_meet_the_same_augmentation():
    """Images that are their own real records are where they should be: nothing moves them."""
    condensed = CondensedImages(CFG, FACTS, CLASSES, KEY)
    before = condensed.images.clone()
    names = condensed.result().labels
    for number in range(10):
        step = condensed.step(number)
        rows = condensed.real_rows(step, condensed.scale.to_pixels(before), names)
        sums = torch.stack([rows[names == c].sum(0) for c in CLASSES])
        condensed.match(step, sums, torch.ones(2), None)
    torch.testing.assert_close(condensed.images, before, rtol=0, atol=1e-3)


def test_the_row_of_a_record_does_not_depend_on_the_others():
    pixels, names = real_records()
    condensed = CondensedImages(CFG, FACTS, CLASSES, KEY)
    for number in range(6):
        step = condensed.step(number)
        together = condensed.real_rows(step, pixels, names)
        kept = torch.tensor([0, 3, 4, 7])
        alone = condensed.real_rows(step, pixels[kept], names[kept])
        torch.testing.assert_close(together[kept], alone, rtol=1e-5, atol=1e-6)


def test_every_step_has_its_own_network_and_the_same_one_again_after_a_crash():
    pixels, names = real_records()
    condensed = CondensedImages(replace(CFG, augmentation="none"), FACTS, CLASSES, KEY)
    first, again, other = (condensed.real_rows(condensed.step(n), pixels, names) for n in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
