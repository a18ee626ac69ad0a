"""The settings of MST: the noise of its three mechanisms uses up the budget."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fedsynth.core.enums import Relation
from fedsynth.core.errors import UserError
from fedsynth.core.types import Budget
from fedsynth.methods.marginals.config import MSTConfig, NoiseMultipliers
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import composed, gaussian


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("shares", [(1 / 3, 1 / 3), (0.1, 0.05)])
def test_the_three_mechanisms_use_up_the_budget(relation, shares):
    cfg = MSTConfig(columns_share=shares[0], choice_share=shares[1])
    noise = NoiseMultipliers.of(cfg, Budget(2.0, 1e-5, relation=relation))
    event = composed([gaussian(m) for m in dataclasses.astuple(noise)])
    assert epsilon(event, 1e-5, "pld", relation) == pytest.approx(2.0, rel=1e-3)
    mu = math.hypot(*(1 / m for m in dataclasses.astuple(noise)))
    assert (1 / noise.columns / mu) ** 2 == pytest.approx(shares[0])
    assert (1 / noise.choice / mu) ** 2 == pytest.approx(shares[1])


def test_shares_that_leave_nothing_are_refused():
    cfg = MSTConfig(columns_share=0.6, choice_share=0.4)
    with pytest.raises(UserError, match=r"mst.columns_share=0.6 and mst.choice_share=0.4 leave 0"):
        NoiseMultipliers.of(cfg, Budget(1.0, 1e-5))
