"""NDPDC: synthetic images whose features, under random networks, resemble noised class sums.

Zheng, Li, "Differentially Private Dataset Condensation" (nonlinear form). In every step a fresh
random network embeds a Poisson group of each class, features are clipped to G and summed, Gaussian
noise is added, and the class's synthetic images follow the sum. Images are augmented before their
features are clipped, so the influence of a record stays within G.

Departure from the paper: its program draws the noise from a generator that its augmentation has
just seeded with a small number; here noise and augmentation come from different sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PartyPlan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.common.poisson_plan import class_rates, expected_records, step_event
from fedsynth.methods.dpdc.common import DataCondensation, GroupConfig
from fedsynth.methods.dpdc.distribution_matching import (
    CondensedImages,
    DistributionConfig,
    check_network,
)
from fedsynth.methods.method import PartyContext
from fedsynth.privacy.clipping import LEAST_CLIP, MOST_CLIP
from fedsynth.privacy.mechanisms.sums import ClassSums


@dataclass(frozen=True)
class NDPDCConfig(DistributionConfig, GroupConfig):
    """NDPDC's settings; the defaults are the published ones."""

    clip: float = setting(
        1.0, "bound G on a record's features", at_least=LEAST_CLIP, at_most=MOST_CLIP
    )


class NDPDC(DataCondensation[NDPDCConfig]):
    """The party runs the whole loop and releases its images."""

    name = "ndpdc"
    summary = "Images matched to clipped, noised feature sums of random networks"
    source = "Zheng and Li, Differentially Private Dataset Condensation (NDPDC)"
    presets = {
        "smoke": {"width": 32, "image_learning_rate": 10.0, "iterations": 20},
        "laptop": {"width": 32, "image_learning_rate": 10.0, "iterations": 400},
    }

    def check(self, cfg: NDPDCConfig, data: DatasetInfo) -> None:
        check_network(cfg, data)

    def party_plan(
        self, cfg: NDPDCConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        images = len(info.class_counts) * (cfg.spc + cfg.group // 3)  # no backward pass for real
        cost = ComputeCost("train", cfg.width, images, cfg.iterations)
        return self.group_plan(cfg, stage, info, budget, steps=cfg.iterations, cost=(cost,))

    def synthesize(self, ctx: PartyContext[NDPDCConfig], request: Request) -> SyntheticSet:
        cfg, plan = ctx.config, ctx.party_plan
        rates = class_rates(cfg.group, ctx.info)
        condensed = CondensedImages(cfg, ctx.dataset, rates, ctx.random_key(request), ctx.device)
        scale = expected_records(rates, ctx.info) / cfg.spc
        width = condensed.width
        with ctx.guard.reserve(step_event(plan), cfg.iterations):
            for number in ctx.data.rounds(cfg.iterations, condensed.state):
                step = condensed.step(number)
                mechanism = ClassSums(
                    contribution=partial(condensed.real_rows, step),
                    width=width,
                    clip=cfg.clip,
                    noise_multiplier=plan.noise_multiplier,
                    sampling_rates=rates,
                )
                (real,) = ctx.guard.apply(mechanism, ctx.data, call=number)
                condensed.match(step, real, scale, cfg.clip)
        return condensed.result()
