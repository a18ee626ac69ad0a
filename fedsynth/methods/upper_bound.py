"""Upper bound: what a classifier reaches when every party simply hands over its records.

A non-private reference. The guard discloses, the ledger says epsilon = infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedsynth.core.model import (
    IMAGE,
    TABLE,
    Budget,
    Method,
    Outcome,
    Parties,
    PartyPlan,
    Plan,
    Release,
    Request,
    Task,
)
from fedsynth.methods.psg.psg import pooled
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.party_data import Private


@dataclass(frozen=True)
class UpperBoundConfig:
    """Nothing to set."""


class UpperBound(Method):
    """All real records of all stages so far."""

    name = "upper_bound"
    summary = "NOT private: the real records of all stages so far, as the bound to compare with"
    private = False
    kinds = (IMAGE, TABLE)
    Config = UpperBoundConfig
    presets = {"smoke": {}, "laptop": {}, "paper": {}}

    def plan(self, cfg: UpperBoundConfig, task: Task, budget: Budget) -> Plan:
        value = 1 if task.data.kind == IMAGE else 4
        record_bytes = value * math.prod(task.data.shape) + 8
        parties = tuple(
            PartyPlan(f.party, f.records, disclosed(), bytes_up=f.records * record_bytes)
            for f in task.parties
        )
        return Plan(self.name, task, budget, parties)

    def party(
        self, cfg: UpperBoundConfig, plan: Plan, private: Private, request: Request, guard: Guard
    ) -> Release:
        records = guard.disclose(private)
        return guard.release({"images": records.images, "labels": records.labels})

    def serve(self, cfg: UpperBoundConfig, plan: Plan, parties: Parties) -> Outcome:
        return replace(pooled(parties.ask(parties.who, Request())), raw=True)
