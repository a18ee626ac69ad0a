"""LDPDC: every synthetic image is the noised mean of a small random group of records.

Zheng, Li, "Differentially Private Dataset Condensation" (linear form). For each class and each of
its images, a Poisson group of expected size L is summed, with pixels scaled to [-1, 1] so that a
record's norm is at most sqrt(d); Gaussian noise is added, and the sum is divided by the expected
size, a public constant.
"""

from __future__ import annotations

import math

import torch

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PartyPlan
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.common.poisson_plan import class_rates, expected_records, step_event
from fedsynth.methods.dpdc.common import DataCondensation, GroupConfig
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.privacy.mechanisms.sums import ClassSums


class LDPDC(DataCondensation[GroupConfig]):
    """The cheapest release of all: one pass over the records."""

    name = "ldpdc"
    summary = "Noised means of small random groups, one per synthetic image"
    source = "Zheng and Li, Differentially Private Dataset Condensation (LDPDC)"

    def request(self, ctx: ServerContext[GroupConfig]) -> Request:
        return Request()  # LDPDC has no public randomness

    def party_plan(
        self, cfg: GroupConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        return self.group_plan(cfg, stage, info, budget, steps=cfg.spc)

    def synthesize(self, ctx: PartyContext[GroupConfig], request: Request) -> SyntheticSet:
        cfg, plan, shape = ctx.config, ctx.party_plan, ctx.dataset.shape
        rates = class_rates(cfg.group, ctx.info)
        scale = Normalizer.symmetric(ctx.dataset)
        width = math.prod(shape)
        mechanism = ClassSums(
            contribution=lambda pixels, _: scale.to_network(pixels),
            width=width,
            clip=math.sqrt(width),
            noise_multiplier=plan.noise_multiplier,
            sampling_rates=rates,
        )
        with ctx.guard.reserve(step_event(plan), cfg.spc):
            groups = [ctx.guard.apply(mechanism, ctx.data, call=image) for image in range(cfg.spc)]
        sums = torch.stack([of_classes for (of_classes,) in groups], dim=1)
        expected = expected_records(rates, ctx.info).to(sums).view(-1, 1, 1)
        images = scale.to_pixels((sums / expected).reshape(-1, *shape))
        labels = torch.tensor(list(rates), dtype=torch.int64).repeat_interleave(cfg.spc)
        return SyntheticSet(images, labels)
