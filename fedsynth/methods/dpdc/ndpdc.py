"""NDPDC: synthetic images whose features, under random networks, resemble noised class sums.

Zheng, Li: "Differentially Private Dataset Condensation" (nonlinear form). In every step a fresh
random network embeds a Poisson group of each class, features are clipped to G and summed, Gaussian
noise is added, and the class's synthetic images follow the sum. Images are augmented before they
are clipped, so a record's influence stays within G. Where the published program draws its noise
from a generator that its augmentation has just seeded with a small number, this draws the two from
different sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fedsynth.core.enums import DataKind
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.methods.dpdc.distribution_matching import (
    CondensedImages,
    DistributionConfig,
    class_rates,
    expected_records,
    refuse_what_cannot_be_seen,
)
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import set_bytes
from fedsynth.methods.psg.psg import pooled
from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import gaussian, poisson, repeated
from fedsynth.privacy.mechanisms.sums import ClassSums


@dataclass(frozen=True)
class NDPDCConfig(DistributionConfig):
    """NDPDC's settings; the defaults are the published ones."""

    group: int = setting(50, "expected records of a class in a step (L)", at_least=1)
    clip: float = setting(1.0, "bound G on a record's features", above=0)
    noise: float | None = setting(
        None, "noise over sensitivity (published: 1); none: what the budget allows", above=0
    )


class NDPDC(Method[NDPDCConfig]):
    """One-shot: the party runs the whole loop and releases its images."""

    name = "ndpdc"
    summary = "Images matched to clipped, noised feature sums of random networks"
    source = "Zheng and Li, Differentially Private Dataset Condensation (NDPDC)"
    paper_convention = "rdp_improved_2000"
    kinds = (DataKind.IMAGE, DataKind.TABLE)
    Config = NDPDCConfig
    presets = {
        "smoke": {"width": 32, "image_rate": 10.0, "iterations": 20},
        "laptop": {"width": 32, "image_rate": 10.0, "iterations": 400},
        "paper": {},
    }

    def plan(self, cfg: NDPDCConfig, stage: Stage, budget: Budget) -> Plan:
        refuse_what_cannot_be_seen(cfg, stage.data)
        parties = tuple(self._party_plan(cfg, stage, info, budget) for info in stage.parties)
        assumes = ("the number of records of each class at each party",)
        return Plan(self.name, stage, budget, parties, assumes=assumes)

    def _party_plan(
        self, cfg: NDPDCConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        rate = max(class_rates(cfg.group, info).values())
        noise = cfg.noise or poisson_gaussian_multiplier(
            rate, cfg.iterations, budget.epsilon, budget.delta, budget.accounting
        )
        held = len(info.class_counts)
        images = held * (cfg.spc + cfg.group // 3)  # the real ones go forward only
        return PartyPlan(
            info.party,
            info.records,
            event=repeated(poisson(rate, gaussian(noise)), cfg.iterations),
            sampling_rate=rate,
            steps=cfg.iterations,
            noise_multiplier=noise,
            bytes_up=set_bytes(stage, held, cfg.spc),
            cost=(ComputeCost("train", cfg.width, images, cfg.iterations),),
        )

    def party(self, ctx: PartyContext[NDPDCConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        share, info = plan.of(private.info.party), private.info
        rates = class_rates(cfg.group, info)
        key = (request.numbers["seed"], self.name, plan.stage.index, info.party)
        condensed = CondensedImages(cfg, plan.stage.data, rates, key, guard.device)
        scale = expected_records(rates, info) / cfg.spc
        width = condensed.width
        event = poisson(share.sampling_rate, gaussian(share.noise_multiplier))
        with guard.reserve(event, cfg.iterations):
            for number in private.rounds(cfg.iterations, condensed.state):
                step = condensed.step(number)
                mechanism = ClassSums(
                    contribution=partial(condensed.real_rows, step),
                    width=width,
                    clip=cfg.clip,
                    noise_multiplier=share.noise_multiplier,
                    sampling_rates=rates,
                )
                (real,) = guard.apply(mechanism, private, call=number)
                condensed.match(step, real, scale, cfg.clip)
        result = condensed.result()
        return guard.release(result)

    def serve(self, ctx: ServerContext[NDPDCConfig]) -> Outcome:
        return pooled(ctx.ask(ctx.parties, Request(numbers={"seed": ctx.seed})))
