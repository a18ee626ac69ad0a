"""Sums over parties, and the placement of their noise: the basis of all joint methods.

In each round of a joint method every party answers with one mechanism, and the server uses the sum
over parties only. `noise_at` is where the noise of that sum is added:

party: Each party adds the whole noise to its own sum. No trust is needed; the noise of K parties
    adds up to sqrt(K) times that of one.
aggregate: A trusted aggregator adds the noise once. The stated epsilon holds for every observer of
    the results; the aggregator's own view has no finite epsilon.
distributed: Each party adds one share of the noise, and a secure sum reveals only the total, with
    the noise of one party. The server need not be trusted, but a server that colludes with parties
    can subtract their shares; that view is reported as well.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from fedsynth.core.enums import NoisePlacement, ViewKind
from fedsynth.core.errors import UserError
from fedsynth.core.messages import AggregatedSum, Release, Request, Shapes
from fedsynth.core.plan import PUBLIC_VIEW, SERVER_VIEW, PartyPlan, Plan, View
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.methods.common.poisson_plan import sampled_party_plan
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.mechanisms.base import Mechanism
from fedsynth.privacy.party_data import PartyData
from fedsynth.privacy.secagg.distributed_noise import weakened
from fedsynth.privacy.secagg.protocol import added


@dataclass(frozen=True)
class NoisePlacementConfig:
    """The placement of noise in a joint method that needs every party of a stage."""

    noise_at: NoisePlacement = setting(NoisePlacement.PARTY, "where noise is added", formerly="at")

    def required_answers(self, stage: Stage) -> int:
        """The number of parties of a stage that must answer, and of shares of the noise."""
        return len(stage.parties)

    def colluding_parties(self) -> int:
        """The number of parties that the view of a colluding server counts with."""
        return 1


@dataclass(frozen=True)
class JointConfig(NoisePlacementConfig):
    """The placement of noise in a joint method that can go on without some parties."""

    min_answers: int | None = setting(
        None, "parties that must answer, and shares the noise is made of; none: all", at_least=1
    )
    colluding: int = setting(
        1,
        "distributed: parties that collude with the server, in the view reported for that case",
        at_least=0,
    )

    def required_answers(self, stage: Stage) -> int:
        if self.min_answers is not None and self.min_answers > len(stage.parties):
            raise UserError(
                f"min_answers={self.min_answers} is more than the {len(stage.parties)} parties of "
                f"stage {stage.index + 1}."
            )
        return self.min_answers or len(stage.parties)

    def colluding_parties(self) -> int:
        return self.colluding


J = TypeVar("J", bound=NoisePlacementConfig)


class JointMethod(Method[J]):
    """A method in which every round sums one mechanism over all parties."""

    @abstractmethod
    def mechanism(
        self, ctx: PartyContext[J], request: Request
    ) -> tuple[Sequence[str], Mechanism[PartyData, Any]]:
        """The mechanism that answers a request, after the names of its values."""

    def party(self, ctx: PartyContext[J], request: Request) -> Release:
        names, mechanism = self.mechanism(ctx, request)
        values = ctx.guard.apply(
            mechanism, ctx.data, call=request.round, noise_at=ctx.config.noise_at
        )
        return ctx.guard.release(dict(zip(names, values, strict=True)))

    def sampled_plan(
        self,
        cfg: J,
        stage: Stage,
        budget: Budget,
        *,
        sampling_rate: float,
        steps: int,
        bytes_up: int,
        bytes_down: int = 0,
        noise: float | None = None,
        party_cost: Callable[[PartyInfo], ComputeCost],
        server_cost: tuple[ComputeCost, ...] = (),
        assumes: tuple[str, ...],
    ) -> Plan:
        """The plan of a method in which every round draws one Poisson sample at each party.

        Args:
            cfg: The settings.
            stage: The public facts of the stage.
            budget: The budget of each party.
            sampling_rate: The probability that a record enters a round, the same at all parties.
            steps: The number of rounds.
            bytes_up: Bytes that a party sends in all rounds.
            bytes_down: Bytes that a party receives in all rounds.
            noise: The noise multiplier; None: the smallest one within the budget.
            party_cost: The work of one party.
            server_cost: The work of the server.
            assumes: The facts that are treated as public.
        """
        party_plans = [
            sampled_party_plan(
                info,
                budget,
                sampling_rate=sampling_rate,
                steps=steps,
                noise=noise,
                bytes_up=bytes_up,
                bytes_down=bytes_down,
                cost=(party_cost(info),),
            )
            for info in stage.parties
        ]
        return Plan(
            self.name,
            stage,
            budget,
            tuple(with_noise_placement(cfg, stage, plan) for plan in party_plans),
            rounds=steps,
            server_cost=server_cost,
            assumes=assumes,
        )


def with_noise_placement(
    cfg: NoisePlacementConfig, stage: Stage, party_plan: PartyPlan
) -> PartyPlan:
    """A party's part of a joint plan, with its share of the noise and the event that each view
    can count."""
    event, shares = party_plan.event, cfg.required_answers(stage)
    if cfg.noise_at == NoisePlacement.PARTY:
        return replace(party_plan, views={SERVER_VIEW: event})
    if cfg.noise_at == NoisePlacement.AGGREGATE:
        return replace(party_plan, views={SERVER_VIEW: disclosed(), PUBLIC_VIEW: event})
    views, colluding = {View.of_sum(shares): event}, cfg.colluding_parties()
    if colluding and shares > 1:
        view = View(ViewKind.COLLUDING, colluding=colluding)
        views[view] = weakened(event, shares, colluding)
    return replace(party_plan, shares=shares, views=views, bytes_up=2 * party_plan.bytes_up)


def aggregate_parties(
    ctx: ServerContext[J],
    request: Request,
    *,
    shapes: Shapes,
    bound: float,
    noise_multiplier: float | None = None,
) -> AggregatedSum:
    """Ask all parties of a stage for one mechanism each, and sum their releases.

    The sum carries the noise once, or once per party with `noise_at=party`. Parties may be missing
    as far as the settings allow.

    Args:
        ctx: The server's context of a joint method.
        request: The request of this round.
        shapes: The arrays that each party answers with.
        bound: The L2 bound on one record's contribution.
        noise_multiplier: The noise relative to `bound`; None: that of the plan.

    Raises:
        UserError: Fewer parties are left than must answer.
    """
    cfg, plan = ctx.config, ctx.plan
    required = cfg.required_answers(plan.stage)
    if cfg.noise_at == NoisePlacement.DISTRIBUTED:
        return ctx.ask_sum(ctx.parties, request, shapes=shapes, bound=bound, at_least=required)
    tolerant = required < len(ctx.parties)
    releases = ctx.ask(
        ctx.parties,
        request,
        allow_missing=tolerant,
        shapes=shapes,
        dtype=torch.int64 if cfg.noise_at == NoisePlacement.AGGREGATE else torch.float32,
    )
    if len(releases) < required:
        raise UserError(
            f"{len(releases)} of {len(ctx.parties)} parties are left, and "
            f"min_answers={required} are needed to go on."
        )
    total = added(releases)
    sums = [total[name] for name in shapes]
    if cfg.noise_at == NoisePlacement.AGGREGATE:
        multiplier = noise_multiplier or plan.parties[0].noise_multiplier
        sums = ctx.central_noise.add(
            sums, sensitivity=bound, noise_multiplier=multiplier, request=request
        )
    parties = tuple(release.party for release in releases)
    return AggregatedSum(dict(zip(shapes, sums, strict=True)), parties)
