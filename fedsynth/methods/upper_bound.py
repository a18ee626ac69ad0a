"""Upper bound: what a classifier reaches when every party simply hands over its records.

A non-private reference. The guard discloses, the ledger says epsilon = infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedsynth.core.enums import DataKind
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, Stage
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.psg.psg import pooled
from fedsynth.privacy.accounting.events import disclosed


@dataclass(frozen=True)
class UpperBoundConfig:
    """Nothing to set."""


class UpperBound(Method[UpperBoundConfig]):
    """All real records of all stages so far."""

    name = "upper_bound"
    summary = "NOT private: the real records of all stages so far, as the bound to compare with"
    private = False
    kinds = (DataKind.IMAGE, DataKind.TABLE)
    Config = UpperBoundConfig
    presets = {"smoke": {}, "laptop": {}, "paper": {}}

    def plan(self, cfg: UpperBoundConfig, stage: Stage, budget: Budget) -> Plan:
        value = 1 if stage.data.kind == DataKind.IMAGE else 4
        record_bytes = value * math.prod(stage.data.shape) + 8
        parties = tuple(
            PartyPlan(f.party, f.records, disclosed(), bytes_up=f.records * record_bytes)
            for f in stage.parties
        )
        return Plan(self.name, stage, budget, parties)

    def party(self, ctx: PartyContext[UpperBoundConfig], request: Request) -> Release:
        private, guard = ctx.data, ctx.guard
        records = guard.disclose(private)
        return guard.release(SyntheticSet(records.images, records.labels))

    def serve(self, ctx: ServerContext[UpperBoundConfig]) -> Outcome:
        return replace(pooled(ctx.ask(ctx.parties, Request())), raw=True)
