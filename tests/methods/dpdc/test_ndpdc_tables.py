"""NDPDC on tables: a fresh linear layer in place of the network, and what Adult costs."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from naive import clipped_rows
from naive_matching import match_both

from fedsynth.core.randomness import default_seed
from fedsynth.core.settings import build
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.methods.dpdc.distribution_matching import CondensedImages, DistributionConfig
from fedsynth.methods.registry import method
from fedsynth.nn.per_example.features import LinearFeatures
from fedsynth.privacy.accounting.accountant import epsilon

TABLE = datasets.find("made_table").info
CFG = DistributionConfig(spc=3, linear=8, image_learning_rate=0.3)
KEY, CLASSES = ("key",), (1, 0)


def naive_layer(number: int) -> torch.nn.Linear:
    with default_seed(*KEY, "network", number):
        return torch.nn.Linear(TABLE.shape[0], CFG.linear)


@pytest.mark.parametrize("bound", [None, 0.8])
def test_matching_is_the_naive_loop(bound):
    """By autograd, without augmentation: || scale_c sum clip(f(x)) - target_c ||^2, each step."""
    condensed = CondensedImages(CFG, TABLE, CLASSES, KEY)

    def loss(number, rows, target, scale):
        features = clipped_rows(naive_layer(number)(rows.flatten(1)), bound)
        sums = features.view(2, CFG.spc, -1).sum(1)
        return ((scale[:, None] * sums - target) ** 2).sum()

    targets = [
        torch.randn((2, CFG.linear), generator=torch.Generator().manual_seed(number))
        for number in range(5)
    ]
    rows = match_both(condensed, CFG, targets, bound, loss)
    torch.testing.assert_close(condensed.images, rows, rtol=1e-4, atol=1e-5)
    assert condensed.width == CFG.linear


def test_real_rows_are_seen_as_they_are():
    """Scaled by public constants, through the layer of the step, whatever class they are of."""
    condensed = CondensedImages(CFG, TABLE, CLASSES, KEY)
    pixels, labels = datasets.load("made_table", "test")
    found = condensed.real_rows(condensed.step(4), pixels[:9].clone(), labels[:9])
    scaled = (pixels[:9].flatten(1) - torch.tensor(TABLE.mean)) / torch.tensor(TABLE.std)
    torch.testing.assert_close(found, naive_layer(4)(scaled).detach())


def test_backward_needs_a_kept_forward():
    features = LinearFeatures(torch.nn.Linear(3, 2))
    features.forward(torch.rand(4, 3, 1, 1))
    with pytest.raises(ValueError, match="keep=True"):
        features.backward(torch.rand(4, 2))


def adult(noise: float | None, counts: dict[int, int], budget: Budget) -> float:
    """The noise or, where that is given, the epsilon of NDPDC's published settings."""
    info = PartyInfo(0, sum(counts.values()), counts)
    stage = Stage(datasets.find("adult").info, 0, 1, (info,), (0, 1), (0, 1))
    chosen = method("ndpdc")
    plan = chosen.plan(build(chosen.Config, {"noise": noise}), stage, budget)
    if noise is None:
        return plan.parties[0].noise_multiplier
    return epsilon(plan.parties[0].event, budget.delta, chosen.paper_convention)


def test_the_printed_noise_for_adult_belongs_to_ten_thousand_records_of_the_rarer_class():
    """2.09 at epsilon 1 (0.99 to 1, by the authors' search). The published training part has 7,841,
    and needs more noise; the paper does not say which records it used."""
    free = Budget(1e6, 1e-5)
    assert 0.99 <= adult(2.09, {0: 30000, 1: 10400}, free) <= 1.0
    assert adult(2.09, dict(enumerate(datasets.find("adult").train)), free) > 1.3
    by_paper = dataclasses.replace(Budget(1.0, 1e-5), accounting="rdp_improved_2000")
    found = adult(None, dict(enumerate(datasets.find("adult").train)), by_paper)
    assert found > 2.09 * 1.2
