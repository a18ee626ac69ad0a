"""Joint DP-MERF: one mean embedding of all parties' records, from the sum of their sums.

The server broadcasts the seed of the random features; every party answers with the summed features
of each class of the stage, also of those that it does not hold. The server divides by the public
number of all records and trains the generator as DP-MERF does. One round, or two with
`labels=noised`. `common.noise_placement` describes where the noise is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import Plan
from fedsynth.core.types import Budget, Stage
from fedsynth.methods.common.noise_placement import (
    JointConfig,
    JointMethod,
    aggregate_parties,
    with_noise_placement,
)
from fedsynth.methods.common.one_shot import ALL_RECORDS, STAGE_CLASSES
from fedsynth.methods.mean_embedding.base import (
    ConstantFeature,
    FeatureMap,
    class_feature_sums,
    normalized_weights,
)
from fedsynth.methods.mean_embedding.dp_merf import DPMERF, DPMERFConfig, FourierEmbedding
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.privacy.mechanisms.sums import ClassSums

EMBEDDING, WEIGHTS = "embedding", "weights"  # kinds of requests


@dataclass(frozen=True)
class DPMERFJointConfig(JointConfig, DPMERFConfig):
    """DP-MERF's settings, and those of joint methods."""


class DPMERFJoint(JointMethod[DPMERFJointConfig], FourierEmbedding[DPMERFJointConfig]):
    """A joint release of one embedding in one round or two."""

    name = "dp_merf_joint"
    summary = "Joint DP-MERF: one noised mean embedding of all parties together"
    source = "this project, after Harder et al. 2021"
    presets = DPMERF.presets

    def plan(self, cfg: DPMERFJointConfig, stage: Stage, budget: Budget) -> Plan:
        plan = super().plan(cfg, stage, budget)
        bytes_up = 4 * len(stage.classes) * (self.width(cfg, stage.data) + cfg.noised_weights)
        parties = tuple(
            with_noise_placement(cfg, stage, replace(party_plan, bytes_up=bytes_up))
            for party_plan in plan.parties
        )
        assumes = (ALL_RECORDS, STAGE_CLASSES)
        return replace(plan, parties=parties, rounds=1 + cfg.noised_weights, assumes=assumes)

    def mechanism(
        self, ctx: PartyContext[DPMERFJointConfig], request: Request
    ) -> tuple[Sequence[str], ClassSums]:
        rows: FeatureMap = ConstantFeature()
        if request.kind == EMBEDDING:
            rows = self.features(ctx.config, ctx.dataset, request.scalar("seed"))
        multiplier, classes = ctx.party_plan.noise_multiplier, ctx.plan.stage.classes
        return ["sums"], class_feature_sums(rows, multiplier, classes)

    def serve(self, ctx: ServerContext[DPMERFJointConfig]) -> SyntheticSet:
        cfg, stage = ctx.config, ctx.plan.stage
        target = _noised_mean(ctx, Request(EMBEDDING), self.width(cfg, stage.data))
        weights = torch.full((len(stage.classes),), 1 / len(stage.classes))
        if cfg.noised_weights:
            weights = normalized_weights(_noised_mean(ctx, Request(WEIGHTS, 1), 1))
        return self.generated_set(ctx, target, weights)


def _noised_mean(ctx: ServerContext[DPMERFJointConfig], request: Request, width: int) -> Tensor:
    """The noised mean over the records of all parties that answered, one row per class."""
    total = aggregate_parties(
        ctx,
        replace(request, scalars={"seed": ctx.seed}),
        shapes={"sums": (len(ctx.plan.stage.classes), width)},
        bound=1.0,
    )
    return total.arrays["sums"] / sum(ctx.plan.info(party).records for party in total.parties)
