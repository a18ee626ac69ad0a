"""G-PATE: how many images the published noise really pays for, and its votes against naive ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.methods import method
from fedsynth.methods.pate.g_pate.config import (
    PUBLISHED,
    GPateConfig,
    GPateRecipe,
    Vote,
    answers,
    ballots,
    projection,
)
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import composed, gaussian, repeated

DELTA = 1e-5


def a_task(records: int = 60_000) -> Stage:
    info = (PartyInfo(0, records, dict.fromkeys(range(10), records // 10)),)
    data = datasets.find("mnist").info
    return Stage(data, 0, 1, info, tuple(range(10)), tuple(range(10)))


@pytest.mark.parametrize(("budget", "images"), [(10, 1519), (1, 1971)])
def test_images_that_the_published_noise_pays_for(budget, images):
    """Whatever the votes, with every threshold paid for, in the authors' own conversion."""
    chosen = PUBLISHED[budget]
    one = Vote(1, 10, chosen.threshold_noise, chosen.noise).event
    count = [epsilon(repeated(one, n), DELTA, "rdp_classic_199") for n in (images, images + 1)]
    assert count[0] <= budget < count[1]


def test_a_round_is_the_composition_of_its_histograms_and_maxima():
    vote = Vote(7, 3, 50.0, 20.0)
    parts = [gaussian(20.0 / 2**0.5), gaussian(50.0)] * 21
    assert epsilon(vote.event, DELTA) == pytest.approx(epsilon(composed(parts), DELTA), rel=1e-9)


@pytest.mark.parametrize("accounting", ["pld", "rdp", "rdp_classic_199"])
@pytest.mark.parametrize(("budget", "teachers", "images"), [(10, 2000, 30), (1, 4000, 15)])
def test_the_published_setting_is_the_default_and_spends_the_budget(
    budget, teachers, images, accounting
):
    recipe = GPateRecipe.of(GPateConfig(), a_task(), Budget(budget, DELTA, accounting=accounting))
    assert recipe.datalens.teachers == {0: teachers}
    assert recipe.datalens.images == images
    cost = epsilon(recipe.event, DELTA, accounting)
    assert 0.999 * budget < cost <= budget * (1 + 1e-9)
    assert recipe.vote.noise <= PUBLISHED[budget].noise
    assert recipe.vote.threshold_noise / recipe.vote.noise == pytest.approx(
        PUBLISHED[budget].threshold_noise / PUBLISHED[budget].noise
    )
    if accounting == "rdp_classic_199":
        assert recipe.datalens.rounds == {10: 1519, 1: 1971}[budget] // images


def test_rounds_can_be_asked_for_and_then_decide_the_noise():
    few, many = (
        GPateRecipe.of(GPateConfig(rounds=n), a_task(), Budget(10, DELTA)) for n in (10, 40)
    )
    assert many.vote.noise == pytest.approx(2 * few.vote.noise)
    assert epsilon(few.event, DELTA) == pytest.approx(epsilon(many.event, DELTA), rel=1e-6)


def test_a_plan_says_what_a_party_sends():
    share = method("g_pate").plan(GPateConfig(rounds=4), a_task(), Budget(10, DELTA)).parties[0]
    assert share.bytes_up == 4 * 4 * 30 * 10
    assert share.steps == 4


@given(st.integers(0, 1000), st.integers(2, 10), st.floats(0.1, 2.0))
@settings(max_examples=15, deadline=None)
def test_a_ballot_names_the_bin_of_each_clipped_value(seed, bins, stretch):
    cfg = replace(GPateConfig(), bins=bins, reach=0.5, projections=4)
    values = torch.randn((3, 4), generator=torch.Generator().manual_seed(seed)) * stretch
    found = ballots(values, cfg).view(3, 4, bins)
    assert (found.sum(-1) == 1).all()
    edges = torch.linspace(-0.5, 0.5, bins + 1)
    for value, vote in zip(values.flatten(), found.view(-1, bins), strict=True):
        place = int(vote.argmax())
        clipped = value.clamp(-0.5, 0.5)
        assert edges[place] - 1e-5 <= clipped <= edges[place + 1] + 1e-5


def test_answers_are_middles_of_the_fullest_bins_where_enough_agree():
    cfg = replace(GPateConfig(), bins=4, reach=2.0, projections=2, confident=0.5)
    counts = torch.tensor([[1.0, 7.0, 2.0, 0.0, 0.0, 0.0, 3.0, 5.0]])
    found = answers(counts, torch.tensor([[7.0, 4.9]]), 10, cfg)
    assert found.tolist() == [[-0.5, 0.0]]
    assert answers(counts, torch.tensor([[7.0, 5.0]]), 10, cfg).tolist() == [[-0.5, 1.5]]


def test_projections_are_fresh_every_round_and_the_same_for_everybody():
    one, again, other = (projection(50, 3, "key", number) for number in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.allclose(one, other)
