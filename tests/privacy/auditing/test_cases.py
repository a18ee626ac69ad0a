"""Worst-case canaries: each moves its mechanism by all that the claim allows, and by no more."""

from __future__ import annotations

import pytest

from fedsynth.core.enums import Relation
from fedsynth.privacy.auditing.cases import MECHANISMS, cases_of
from fedsynth.privacy.auditing.mechanisms import _Setting

COVERS_ANY_CHANGE = ("sample_function", "upstream_gradients", "vote_sums", "vote_maxima")


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_worst_canary_of_every_mechanism_moves_it_by_its_sensitivity(name):
    """Not more, or the sensitivity would be wrong; not much less, or the canary would be weak."""
    noise = 1.0
    for case in cases_of(name):
        reached = _Setting(case, noise, 1).measured().distance()
        assert reached <= 1 + 1e-6
        if case.attack != "out of bounds":
            assert reached >= 0.99
        else:
            assert reached == 0


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_canary_in_place_of_another_record_moves_sums_twice_as_far(name):
    """The claim for a replaced record is twice the bound. Where the bound covers any change of the
    records already, an exchange moves the values by no more than that: half of the claim."""
    for case in cases_of(name):
        if case.attack in ("direction", "sampled", "colluding"):
            reached = _Setting(case, 1.0, 1, Relation.REPLACE_ONE).measured().distance()
            elsewhere = name in ("second_moments", "marginal_counts")  # in other numbers
            expected = 1.0 if name in COVERS_ANY_CHANGE else 2**0.5 if elsewhere else 2.0
            assert reached == pytest.approx(expected, rel=1e-2)


def test_the_noise_of_colluding_parties_is_taken_away():
    (case,) = (case for case in cases_of("shared_sum") if case.colluding)
    runs = _Setting(case, 1.0, 1).measured()
    assert runs.distance(1) == pytest.approx(2**0.5 * runs.distance())
