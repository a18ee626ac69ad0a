"""The base of one-shot methods: its plan, and the bytes of a set."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PartyPlan
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.common.one_shot import OneShotMethod, set_bytes
from fedsynth.privacy.accounting.events import gaussian

DATA = DatasetInfo("tiny", (3, 4, 5), 6, (0.5,) * 3, (0.25,) * 3)
PARTIES = (PartyInfo(0, 10, {1: 10}), PartyInfo(1, 20, {2: 20}))
STAGE = Stage(DATA, 0, 1, PARTIES, (1, 2), (1, 2))


@dataclass(frozen=True)
class Settings:
    """Settings of the method under test."""

    channels: int = 3


class OneSet(OneShotMethod[Settings]):
    """A method that plans, and releases nothing."""

    assumes = ("a fact",)

    def check(self, cfg, data):
        if cfg.channels != data.shape[0]:
            raise UserError("other channels")

    def party_plan(self, cfg, stage, info, budget):
        return PartyPlan(info.party, info.records, gaussian(1.0))

    def synthesize(self, ctx, request):
        raise NotImplementedError


OneSet.name = "one_set"  # not in the class body, where the registry would look for it


def test_a_plan_has_one_part_per_party_and_the_facts_it_assumes():
    plan = OneSet().plan(Settings(), STAGE, Budget(1.0, 1e-5))
    assert [part.party for part in plan.parties] == [0, 1]
    assert (plan.method, plan.rounds, plan.assumes) == ("one_set", 1, ("a fact",))


def test_data_that_the_networks_cannot_take_are_refused_in_the_plan():
    with pytest.raises(UserError, match="other channels"):
        OneSet().plan(Settings(channels=1), STAGE, Budget(1.0, 1e-5))


def test_the_bytes_of_a_set_are_those_of_its_arrays():
    released = SyntheticSet(torch.zeros(2 * 7, *DATA.shape), torch.zeros(2 * 7, dtype=torch.int64))
    arrays = released.to_arrays().values()
    assert set_bytes(STAGE, 2, 7) == sum(a.numel() * a.element_size() for a in arrays)
