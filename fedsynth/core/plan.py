"""The public plan of a stage: what each party will do and spend, before any data is read."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from dp_accounting import DpEvent

from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage


@dataclass(frozen=True)
class PartyPlan:
    """One party's part of a plan."""

    party: int
    records: int
    event: DpEvent  # everything that this party will charge in this stage
    sampling_rate: float = 1.0
    steps: int = 1
    noise_multiplier: float = 0.0
    shares: int = 1  # distributed noise: the number of equal shares, of which a party adds one
    views: Mapping[str, DpEvent] = field(default_factory=dict)  # per view, what it can count
    paper_event: DpEvent | None = None  # the published count, where it differs from `event`
    bytes_up: int = 0
    bytes_down: int = 0
    cost: tuple[ComputeCost, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The public plan of one stage: rounds of requests, and one part per party."""

    method: str
    stage: Stage
    budget: Budget
    parties: tuple[PartyPlan, ...]
    rounds: int = 1
    images: int | None = None  # in the outcome, where bytes and settings do not tell
    server_cost: tuple[ComputeCost, ...] = ()
    assumes: tuple[str, ...] = ()  # facts treated as public that a careful reader should know
    warnings: tuple[str, ...] = ()  # shown to the user before the run

    def of(self, party: int) -> PartyPlan:
        """The plan of one party."""
        return self._by_party[0][party]

    def info(self, party: int) -> PartyInfo:
        """The public facts of one party."""
        return self._by_party[1][party]

    @functools.cached_property
    def _by_party(self) -> tuple[dict[int, PartyPlan], dict[int, PartyInfo]]:
        plans = {plan.party: plan for plan in self.parties}
        return plans, {info.party: info for info in self.stage.parties}
