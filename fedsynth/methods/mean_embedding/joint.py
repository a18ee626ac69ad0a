"""Joint DP-MERF: one mean embedding of all parties' records, from the sum of their sums.

The curator broadcasts the seed of the random features; every party answers with the summed features
of each class of the stage, also of those it does not hold, and the curator divides by the public
number of all records and trains the generator as ever. One round, or two with `labels=noised`. Who
adds the noise: see `methods._joint`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import Plan
from fedsynth.core.types import Budget, Stage
from fedsynth.methods.common.noise_placement import (
    JointConfig,
    aggregate_parties,
    with_noise_placement,
)
from fedsynth.methods.mean_embedding.base import ConstantFeature, FeatureMap, label_shares
from fedsynth.methods.mean_embedding.dp_merf import DPMERF, DPMERFConfig
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.privacy.mechanisms.sums import ClassSums

EMBEDDING, WEIGHTS = "embedding", "weights"


@dataclass(frozen=True)
class DPMERFJointConfig(JointConfig, DPMERFConfig):
    """DP-MERF's settings, where the noise is added, and who may be missing."""


class DPMERFJoint(DPMERF):
    """A conversation of one round, or of two."""

    name = "dp_merf_joint"
    summary = "DP-MERF as a conversation: one noised mean embedding of all parties together"
    source = "this project, after Harder et al. 2021"
    Config = DPMERFJointConfig

    def plan(self, cfg: Any, stage: Stage, budget: Budget) -> Plan:
        alone = super().plan(cfg, stage, budget)
        noised = cfg.labels == "noised"
        up = 4 * len(stage.classes) * (self.width(cfg, stage.data) + noised)
        parties = tuple(
            with_noise_placement(cfg, stage, replace(p, bytes_up=up)) for p in alone.parties
        )
        assumes = ("the number of records of all parties together", "the classes of a stage")
        return replace(alone, parties=parties, rounds=1 + noised, assumes=assumes)

    def party(self, ctx: PartyContext[Any], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        rows: FeatureMap = ConstantFeature()
        if request.kind == EMBEDDING:
            rows = self.features(cfg, plan.stage.data, request.numbers["seed"])
        mechanism = ClassSums(
            contribution=lambda pixels, _: rows(pixels),
            width=rows.width,
            clip=1.0,
            noise_multiplier=plan.of(private.info.party).noise_multiplier,
            sampling_rates=dict.fromkeys(plan.stage.classes, 1.0),
        )
        (sums,) = guard.apply(
            mechanism, private, call=request.round, noise_at=NoisePlacement(cfg.at)
        )
        return guard.release({"sums": sums})

    def serve(self, ctx: ServerContext[Any]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        classes = len(plan.stage.classes)
        wanted = self._mean(cfg, plan, ctx, Request(EMBEDDING), self.width(cfg, plan.stage.data))
        weights = torch.full((classes,), 1 / classes)
        if cfg.labels == "noised":
            weights = label_shares(self._mean(cfg, plan, ctx, Request(WEIGHTS, 1), 1))
        return self.generated(cfg, plan, ctx, wanted, weights)

    @staticmethod
    def _mean(
        cfg: Any, plan: Plan, parties: ServerContext[Any], request: Request, width: int
    ) -> Tensor:
        """The noised mean over the records of all parties that answered, a row a class."""
        total = aggregate_parties(
            cfg,
            plan,
            parties,
            replace(request, numbers={"seed": parties.seed}),
            shapes={"sums": (len(plan.stage.classes), width)},
            bound=1.0,
            noise_multiplier=plan.parties[0].noise_multiplier,
        )
        return total.arrays["sums"] / sum(plan.info(p).records for p in total.parties)
