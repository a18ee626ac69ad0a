"""One-shot releases: one request per stage, a synthetic set from each party, joined by the server.

`OneShotMethod` has the common parts of these methods. A method of this kind defines the spending of
a party (`party_plan`) and the set that it releases (`synthesize`). `NonPrivateReference` is
the same for references that disclose their records at infinite cost.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, TypeVar

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.privacy.accounting.events import disclosed

C = TypeVar("C")

# Facts that plans treat as public
PARTY_RECORDS = "the number of records of each party"
PARTY_CLASSES = "the classes a party holds"
ALL_RECORDS = "the number of records of all parties together"
STAGE_CLASSES = "the classes of a stage"


class OneShotMethod(Method[C]):
    """A method in which each party releases one synthetic set and the server joins them."""

    assumes: ClassVar[tuple[str, ...]] = (PARTY_RECORDS, PARTY_CLASSES)

    @abstractmethod
    def party_plan(self, cfg: C, stage: Stage, info: PartyInfo, budget: Budget) -> PartyPlan:
        """One party's part of the plan."""

    @abstractmethod
    def synthesize(self, ctx: PartyContext[C], request: Request) -> SyntheticSet:
        """Compute the set that a party releases; only `ctx.guard` may touch its records."""

    def check(self, cfg: C, data: DatasetInfo) -> None:
        """Raise a UserError if the networks of the method cannot handle such data."""

    def request(self, ctx: ServerContext[C]) -> Request:
        """The request of a stage: by default, the seed of public randomness only."""
        return Request(scalars={"seed": ctx.seed})

    def plan(self, cfg: C, stage: Stage, budget: Budget) -> Plan:
        self.check(cfg, stage.data)
        parties = tuple(self.party_plan(cfg, stage, info, budget) for info in stage.parties)
        return Plan(self.name, stage, budget, parties, assumes=self.assumes)

    def party(self, ctx: PartyContext[C], request: Request) -> Release:
        return ctx.guard.release(self.synthesize(ctx, request))

    def serve(self, ctx: ServerContext[C]) -> SyntheticSet:
        releases = ctx.ask(ctx.parties, self.request(ctx))
        return SyntheticSet.join([release.synthetic_set() for release in releases])


class NonPrivateReference(OneShotMethod[C]):
    """A one-shot method on disclosed records: how far it gets without clipping and noise.

    The ledger records epsilon = infinity, and every report marks the result as not private."""

    private = False
    assumes = ()

    @abstractmethod
    def synthesize_from(
        self, ctx: PartyContext[C], request: Request, records: Records
    ) -> SyntheticSet:
        """Compute a party's set from its records."""

    @abstractmethod
    def set_size(self, cfg: C, stage: Stage, info: PartyInfo) -> int:
        """Bytes of a party's set."""

    def work(self, cfg: C, info: PartyInfo) -> tuple[int, tuple[ComputeCost, ...]]:
        """The number of steps of a party, and what they compute."""
        return 1, ()

    def party_plan(self, cfg: C, stage: Stage, info: PartyInfo, budget: Budget) -> PartyPlan:
        steps, cost = self.work(cfg, info)
        return PartyPlan(
            info.party,
            info.records,
            disclosed(),
            steps=steps,
            bytes_up=self.set_size(cfg, stage, info),
            cost=cost,
        )

    def synthesize(self, ctx: PartyContext[C], request: Request) -> SyntheticSet:
        return self.synthesize_from(ctx, request, ctx.guard.disclose(ctx.data))


def set_bytes(stage: Stage, classes: int, spc: int) -> int:
    """Bytes of a released set of `spc` images per class: float32 pixels and int64 labels."""
    channels, height, width = stage.data.shape
    return classes * spc * (channels * height * width * 4 + 8)
