"""LDPDC: every synthetic image is a noised mean of a small random group of records.

Zheng, Li: "Differentially Private Dataset Condensation" (linear form). For each class and each of
its images, a Poisson group of expected size L is summed, with pixels scaled to [-1, 1] so that a
record's norm is at most sqrt(d); Gaussian noise is added and the sum is divided by the expected
size, a public constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.common.poisson_plan import sampled_share, step_event
from fedsynth.methods.dpdc.distribution_matching import class_rates, expected_records
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import set_bytes
from fedsynth.methods.psg.psg import pooled
from fedsynth.privacy.mechanisms.sums import ClassSums


@dataclass(frozen=True)
class LDPDCConfig:
    """LDPDC's settings; the defaults are the published ones."""

    spc: int = setting(50, "synthetic images a class (M)", at_least=1)
    group: int = setting(50, "expected records in a group (L)", at_least=1)
    noise: float | None = setting(
        None, "noise over sensitivity (published: 1); none: what the budget allows", above=0
    )


class LDPDC(Method[LDPDCConfig]):
    """One-shot and the cheapest release there is: one pass over the records."""

    name = "ldpdc"
    summary = "Noised means of small random groups, one for each synthetic image"
    source = "Zheng and Li, Differentially Private Dataset Condensation (LDPDC)"
    paper_convention = "rdp_improved_2000"
    kinds = (DataKind.IMAGE, DataKind.TABLE)
    Config = LDPDCConfig
    presets = {"smoke": {}, "laptop": {}, "paper": {}}

    def plan(self, cfg: LDPDCConfig, stage: Stage, budget: Budget) -> Plan:
        parties = tuple(self._party_plan(cfg, stage, info, budget) for info in stage.parties)
        assumes = ("the number of records of each class at each party",)
        return Plan(self.name, stage, budget, parties, assumes=assumes)

    def _party_plan(
        self, cfg: LDPDCConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        return sampled_share(
            info,
            budget,
            rate=max(class_rates(cfg.group, info).values()),
            steps=cfg.spc,
            noise=cfg.noise,
            bytes_up=set_bytes(stage, len(info.class_counts), cfg.spc),
        )

    def party(self, ctx: PartyContext[LDPDCConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        share = plan.of(private.info.party)
        rates = class_rates(cfg.group, private.info)
        scale = Normalizer.symmetric(plan.stage.data)
        shape = plan.stage.data.shape
        pixels = math.prod(shape)

        mechanism = ClassSums(
            contribution=lambda pixels, _: scale.to_network(pixels),
            width=pixels,
            clip=math.sqrt(pixels),
            noise_multiplier=share.noise_multiplier,
            sampling_rates=rates,
        )
        with guard.reserve(step_event(share), cfg.spc):
            per_image = [guard.apply(mechanism, private, call=image) for image in range(cfg.spc)]
        sums = torch.stack([total for (total,) in per_image], dim=1)
        expected = expected_records(rates, private.info).to(sums).view(-1, 1, 1)
        images = scale.to_pixels((sums / expected).reshape(-1, *shape))
        labels = torch.tensor(list(rates), dtype=torch.int64).repeat_interleave(cfg.spc)
        return guard.release(SyntheticSet(images, labels))

    def serve(self, ctx: ServerContext[LDPDCConfig]) -> Outcome:
        return pooled(ctx.ask(ctx.parties, Request()))
