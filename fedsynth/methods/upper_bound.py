"""Upper bound: the accuracy of a classifier trained on the records of all parties themselves.

A non-private reference: every party discloses its records, the ledger says epsilon = infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedsynth.core.enums import DataKind
from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.types import PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.methods.common.one_shot import NonPrivateReference
from fedsynth.methods.method import PartyContext, ServerContext


@dataclass(frozen=True)
class UpperBoundConfig:
    """No settings."""


class UpperBound(NonPrivateReference[UpperBoundConfig]):
    """All real records of all stages so far."""

    name = "upper_bound"
    summary = "NOT private: the real records of all stages so far, as the bound to compare with"
    kinds = (DataKind.IMAGE, DataKind.TABLE)

    def request(self, ctx: ServerContext[UpperBoundConfig]) -> Request:
        return Request()

    def set_size(self, cfg: UpperBoundConfig, stage: Stage, info: PartyInfo) -> int:
        value_bytes = 1 if stage.data.kind == DataKind.IMAGE else 4
        return info.records * (value_bytes * math.prod(stage.data.shape) + 8)

    def synthesize_from(
        self, ctx: PartyContext[UpperBoundConfig], request: Request, records: Records
    ) -> SyntheticSet:
        return SyntheticSet(records.images, records.labels)

    def serve(self, ctx: ServerContext[UpperBoundConfig]) -> SyntheticSet:
        return replace(super().serve(ctx), raw=True)
