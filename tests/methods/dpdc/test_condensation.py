"""Condensation: the small set resembles the large one in what was matched, and stays in bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.data import registry as datasets
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.dpdc.condensation import Condensation, CondensationConfig, condense
from fedsynth.methods.psg.gradient_matching import row_cosine_distance
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.nn.per_example.gradients import loss_and_gradients

CPU = torch.device("cpu")
FACTS = datasets.find("shapes").info
CLASSES = (2, 7)


def large_set(n: int = 80) -> SyntheticSet:
    """Bright squares of many sizes, in the upper half or in the lower one."""
    generator = torch.Generator().manual_seed(5)
    images = torch.zeros(n, 1, 28, 28, dtype=torch.uint8)
    for i in range(n):
        size, at = torch.randint(3, 12, (2,), generator=generator).tolist()
        top = 14 * (i % 2) + 1
        images[i, 0, top : top + size, at : at + size] = 200
    return SyntheticSet(images, torch.tensor(CLASSES)[torch.arange(n) % 2])


def start(large: SyntheticSet, spc: int) -> SyntheticSet:
    chosen = torch.cat([torch.nonzero(large.labels == label).flatten()[:spc] for label in CLASSES])
    return SyntheticSet(large.images[chosen], large.labels[chosen])


def feature_gap(small: SyntheticSet, large: SyntheticSet) -> float:
    """Squared distance of the classes' mean features, under networks unused in matching."""
    gap = 0.0
    for seed in range(5):
        net = make_convnet(8, FACTS, 10, "unseen", seed)
        scale = Normalizer.symmetric(FACTS)
        for label in CLASSES:
            means = [
                net.requires_grad_(False)
                .embed(scale.to_network(s.pixels()[s.labels == label]))
                .mean(0)
                for s in (small, large)
            ]
            gap += float((means[0] - means[1]).square().sum())
    return gap


def gradient_gap(small: SyntheticSet, large: SyntheticSet) -> float:
    """The distance of both sets' gradients, at networks unused in matching."""
    gap = 0.0
    for seed in range(5):
        net, scale = make_convnet(8, FACTS, 10, "unseen", seed), Normalizer.standard(FACTS)
        gradients = [
            loss_and_gradients(net, scale.to_network(s.pixels()), s.labels)[1]
            for s in (small, large)
        ]
        gap += float(row_cosine_distance(*gradients))
    return gap


@pytest.mark.parametrize(
    ("way", "gap", "share"),
    [(Condensation.FEATURES, feature_gap, 0.8), (Condensation.GRADIENTS, gradient_gap, 0.97)],
)
def test_a_matched_set_is_nearer_to_the_large_one_than_the_images_it_started_from(
    way: str, gap: Callable[[SyntheticSet, SyntheticSet], float], share: float
) -> None:
    large = large_set()
    cfg = CondensationConfig(way, 3, 40, 8)
    small = condense(cfg, large, FACTS, key=(1,), device=CPU)
    assert gap(small, large) < share * gap(start(large, 3), large)
    assert small.images.dtype == torch.uint8
    assert small.labels.tolist() == [2, 2, 2, 7, 7, 7]
    assert torch.equal(condense(cfg, large, FACTS, key=(1,), device=CPU).images, small.images)
    assert not torch.equal(condense(cfg, large, FACTS, key=(2,), device=CPU).images, small.images)


@pytest.mark.parametrize("way", list(Condensation)[1:])
def test_a_class_of_few_images_still_gets_as_many_as_the_others(way: str) -> None:
    large = large_set(5)  # three and two
    small = condense(CondensationConfig(way, 4, 1, 4), large, FACTS, key=(1,), device=CPU)
    assert small.labels.tolist() == [2] * 4 + [7] * 4
    assert len({image.numpy().tobytes() for image in start(large, 4).images}) == 5
    assert int(small.images.flatten(1).amax(1).min()) > 0
