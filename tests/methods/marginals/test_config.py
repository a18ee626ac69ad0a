"""The settings of MST: the noise of its three mechanisms uses up the budget."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fedsynth.core.enums import Relation
from fedsynth.core.types import Budget
from fedsynth.methods.marginals.config import MSTConfig, NoiseMultipliers
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import composed, gaussian


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (2.0, 1.0, 5.0)])
def test_the_three_mechanisms_use_up_the_budget(relation, weights):
    cfg = MSTConfig(None, *weights)
    noise = NoiseMultipliers.of(cfg, Budget(2.0, 1e-5, relation=relation))
    event = composed([gaussian(m) for m in dataclasses.astuple(noise)])
    assert epsilon(event, 1e-5, "pld", relation) == pytest.approx(2.0, rel=1e-3)
    mu = math.hypot(*(1 / m for m in dataclasses.astuple(noise)))
    for multiplier, weight in zip(dataclasses.astuple(noise), weights, strict=True):
        assert (1 / multiplier / mu) ** 2 == pytest.approx(weight / sum(weights))
