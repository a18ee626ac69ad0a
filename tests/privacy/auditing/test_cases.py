"""Worst-case canaries: each moves its mechanism by all that the claim allows, and by no more."""

from __future__ import annotations

import pytest

from fedsynth.privacy.auditing.cases import MECHANISMS, cases_of
from fedsynth.privacy.auditing.mechanisms import _Setting
from fedsynth.privacy.auditing.recording import distance


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_worst_canary_of_every_mechanism_moves_it_by_its_sensitivity(name):
    """Not more, or the sensitivity would be wrong; not much less, or the canary would be weak."""
    noise = 1.0
    for case in cases_of(name):
        reached = distance(*_Setting(case, noise, 1).measured())
        assert reached <= 1 + 1e-6
        if case.attack != "out of bounds":
            assert reached >= 0.99
        else:
            assert reached == 0
