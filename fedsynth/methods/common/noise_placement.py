"""Sums over parties, and where their noise is added: what the joint methods share.

`at=party`: each party adds the whole noise itself; nobody needs to be trusted, and the noise of K
parties adds up to sqrt(K) times one party's. `at=aggregate`: a trusted curator adds the noise once
to the sum; its own view costs infinity, the stated epsilon holds for those who see the result.
`at=distributed`: each party adds a share of the noise, and a secure sum shows the curator nothing
but the sum: one party's noise, and a curator who need not be trusted. A curator that colludes with
parties knows their shares; that view is reported too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from dp_accounting import DpEvent

from fedsynth.core.enums import NoisePlacement, ViewKind
from fedsynth.core.errors import UserError
from fedsynth.core.messages import AggregatedSum, Request, Shapes
from fedsynth.core.plan import PUBLIC_VIEW, SERVER_VIEW, PartyPlan, Plan, View
from fedsynth.core.settings import setting
from fedsynth.core.types import Stage
from fedsynth.methods.method import ServerContext
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.secagg.distributed_noise import weakened


@dataclass(frozen=True)
class NoiseAt:
    """Where the noise is added."""

    at: str = setting(
        "party", "who adds the noise", choices=tuple(place.value for place in NoisePlacement)
    )


@dataclass(frozen=True)
class JointConfig(NoiseAt):
    """Where the noise is added, and who may be missing."""

    min_answers: int | None = setting(
        None, "parties that must answer, and shares the noise is made of; none: all", at_least=1
    )
    colluding: int = setting(
        1, "distributed: parties on the curator's side, for the view of both together", at_least=0
    )


def required_answers(cfg: NoiseAt, stage: Stage) -> int:
    """How many parties of a stage must answer."""
    wanted = getattr(cfg, "min_answers", None)
    if wanted is not None and wanted > len(stage.parties):
        raise UserError(
            f"min_answers={wanted} is more than the {len(stage.parties)} parties of stage "
            f"{stage.index + 1}."
        )
    return wanted or len(stage.parties)


def with_noise_placement(cfg: NoiseAt, stage: Stage, share: PartyPlan) -> PartyPlan:
    """A party's share of a joint release, with its part of the noise and what each view counts."""
    shares, colluding = required_answers(cfg, stage), getattr(cfg, "colluding", 1)
    if cfg.at != NoisePlacement.DISTRIBUTED:
        return replace(share, views=_views(cfg.at, share.event))
    views = {View.of_sum(shares): share.event}
    if colluding and shares > 1:
        view = View(ViewKind.COLLUDING, colluding=colluding)
        views[view] = weakened(share.event, shares, colluding)
    return replace(share, shares=shares, views=views, bytes_up=2 * share.bytes_up)


def _views(at: str, event: DpEvent) -> Mapping[View, DpEvent]:
    if at == NoisePlacement.AGGREGATE:
        return {SERVER_VIEW: disclosed(), PUBLIC_VIEW: event}
    return {SERVER_VIEW: event}


def aggregate_parties(
    cfg: NoiseAt,
    plan: Plan,
    parties: ServerContext[Any],
    request: Request,
    *,
    shapes: Shapes,
    bound: float,
    noise_multiplier: float,
) -> AggregatedSum:
    """Ask all parties of a stage for one mechanism each, of this bound on a record, and add their
    answers up: with the noise of `noise_multiplier` once, or once a party where it is the parties'.
    Parties may be missing as far as the settings allow."""
    needed = required_answers(cfg, plan.stage)
    if cfg.at == NoisePlacement.DISTRIBUTED:
        return parties.ask_sum(
            parties.parties, request, shapes=shapes, bound=bound, at_least=needed
        )
    tolerant = needed < len(parties.parties)
    answers = parties.ask(parties.parties, request, allow_missing=tolerant, shapes=shapes)
    if len(answers) < needed:
        raise UserError(
            f"{len(answers)} of {len(parties.parties)} parties are left, and "
            f"min_answers={needed} are needed to go on."
        )
    sums = [torch.stack([a.arrays[name] for a in answers]).sum(0) for name in shapes]
    if cfg.at == NoisePlacement.AGGREGATE:
        sums = parties.central_noise.add(
            sums, clip=bound, noise_multiplier=noise_multiplier, request=request
        )
    who = tuple(answer.party for answer in answers)
    return AggregatedSum(dict(zip(shapes, sums, strict=True)), who)
