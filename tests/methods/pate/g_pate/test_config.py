"""G-PATE's parameters: the number of images that the published noise really allows."""

from __future__ import annotations

import pytest

from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.methods.pate.g_pate.config import (
    PUBLISHED,
    GPateConfig,
    GPateParameters,
    RoundNoise,
)
from fedsynth.methods.registry import method
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
    one = RoundNoise(1, 10, chosen.threshold_noise, chosen.noise).event
    count = [epsilon(repeated(one, n), DELTA, "rdp_classic_199") for n in (images, images + 1)]
    assert count[0] <= budget < count[1]


def test_a_round_is_the_composition_of_its_histograms_and_maxima():
    noise = RoundNoise(7, 3, 50.0, 20.0)
    parts = [gaussian(20.0 / 2**0.5), gaussian(50.0)] * 21
    assert epsilon(noise.event, DELTA) == pytest.approx(epsilon(composed(parts), DELTA), rel=1e-9)


@pytest.mark.parametrize("accounting", ["pld", "rdp", "rdp_classic_199"])
@pytest.mark.parametrize(("budget", "teachers", "images"), [(10, 2000, 30), (1, 4000, 15)])
def test_the_published_setting_is_the_default_and_spends_the_budget(
    budget, teachers, images, accounting
):
    parameters = GPateParameters.of(
        GPateConfig(), a_task(), Budget(budget, DELTA, accounting=accounting)
    )
    assert parameters.teachers == {0: teachers}
    assert parameters.images == images
    cost = epsilon(parameters.event, DELTA, accounting)
    assert 0.999 * budget < cost <= budget * (1 + 1e-9)
    assert parameters.noise.noise <= PUBLISHED[budget].noise
    assert parameters.noise.threshold_noise / parameters.noise.noise == pytest.approx(
        PUBLISHED[budget].threshold_noise / PUBLISHED[budget].noise
    )
    if accounting == "rdp_classic_199":
        assert parameters.rounds == {10: 1519, 1: 1971}[budget] // images


def test_teachers_are_updated_once_per_round_as_published():
    assert (GPateConfig().teacher_steps, GPateConfig().first_updates) == (1, 1)


def test_rounds_can_be_asked_for_and_then_decide_the_noise():
    few, many = (
        GPateParameters.of(GPateConfig(rounds=n), a_task(), Budget(10, DELTA)) for n in (10, 40)
    )
    assert many.noise.noise == pytest.approx(2 * few.noise.noise)
    assert epsilon(few.event, DELTA) == pytest.approx(epsilon(many.event, DELTA), rel=1e-6)


def test_a_plan_says_what_a_party_sends():
    share = method("g_pate").plan(GPateConfig(rounds=4), a_task(), Budget(10, DELTA)).parties[0]
    assert share.bytes_up == 4 * 4 * 30 * 10
    assert share.steps == 4
