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

from fedsynth.core.model import (
    IMAGE,
    TABLE,
    Budget,
    Method,
    Outcome,
    Parties,
    PartyFacts,
    PartyPlan,
    Plan,
    Release,
    Request,
    Task,
    Work,
)
from fedsynth.core.settings import setting
from fedsynth.methods.dpdc.distribution_matching import (
    CondensedImages,
    DistributionConfig,
    class_rates,
    expected_records,
    refuse_what_cannot_be_seen,
)
from fedsynth.methods.psg.gradient_matching import set_bytes
from fedsynth.methods.psg.psg import pooled
from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import gaussian, poisson, repeated
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.party_data import Private


@dataclass(frozen=True)
class NDPDCConfig(DistributionConfig):
    """NDPDC's settings; the defaults are the published ones."""

    group: int = setting(50, "expected records of a class in a step (L)", at_least=1)
    clip: float = setting(1.0, "bound G on a record's features", above=0)
    noise: float | None = setting(
        None, "noise over sensitivity (published: 1); none: what the budget allows", above=0
    )


class NDPDC(Method):
    """One-shot: the party runs the whole loop and releases its images."""

    name = "ndpdc"
    summary = "Images matched to clipped, noised feature sums of random networks"
    source = "Zheng and Li, Differentially Private Dataset Condensation (NDPDC)"
    paper_convention = "rdp_improved_2000"
    kinds = (IMAGE, TABLE)
    Config = NDPDCConfig
    presets = {
        "smoke": {"width": 32, "image_rate": 10.0, "iterations": 20},
        "laptop": {"width": 32, "image_rate": 10.0, "iterations": 400},
        "paper": {},
    }

    def plan(self, cfg: NDPDCConfig, task: Task, budget: Budget) -> Plan:
        refuse_what_cannot_be_seen(cfg, task.data)
        parties = tuple(self._party_plan(cfg, task, facts, budget) for facts in task.parties)
        assumes = ("the number of records of each class at each party",)
        return Plan(self.name, task, budget, parties, assumes=assumes)

    def _party_plan(
        self, cfg: NDPDCConfig, task: Task, facts: PartyFacts, budget: Budget
    ) -> PartyPlan:
        rate = max(class_rates(cfg.group, facts).values())
        noise = cfg.noise or poisson_gaussian_multiplier(
            rate, cfg.iterations, budget.epsilon, budget.delta, budget.accounting
        )
        held = len(facts.class_counts)
        images = held * (cfg.spc + cfg.group // 3)  # the real ones go forward only
        return PartyPlan(
            facts.party,
            facts.records,
            event=repeated(poisson(rate, gaussian(noise)), cfg.iterations),
            sampling_rate=rate,
            steps=cfg.iterations,
            noise_multiplier=noise,
            bytes_up=set_bytes(task, held, cfg.spc),
            work=(Work("train", cfg.width, images, cfg.iterations),),
        )

    def party(
        self, cfg: NDPDCConfig, plan: Plan, private: Private, request: Request, guard: Guard
    ) -> Release:
        share, facts = plan.of(private.facts.party), private.facts
        rates = class_rates(cfg.group, facts)
        key = (request.numbers["seed"], self.name, plan.task.stage, facts.party)
        condensed = CondensedImages(cfg, plan.task.data, rates, key, guard.device)
        scale = expected_records(rates, facts) / cfg.spc
        width = condensed.width
        event = poisson(share.sampling_rate, gaussian(share.noise_multiplier))
        with guard.reserve(event, cfg.iterations):
            for number in private.rounds(cfg.iterations, condensed.state):
                step = condensed.step(number)
                real = guard.noisy_class_sums(
                    private,
                    partial(condensed.real_rows, step),
                    width=width,
                    bound=cfg.clip,
                    noise_multiplier=share.noise_multiplier,
                    rates=rates,
                    call=number,
                )
                condensed.match(step, real, scale, cfg.clip)
        result = condensed.result()
        return guard.release({"images": result.images, "labels": result.labels})

    def serve(self, cfg: NDPDCConfig, plan: Plan, parties: Parties) -> Outcome:
        return pooled(parties.ask(parties.who, Request(numbers={"seed": parties.seed})))
