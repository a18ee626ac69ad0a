"""PSG, private set generation: each party distils its records into a few private images.

Chen, Kerkouche, Fritz: "Private Set Generation with Discriminative Information", 2022. Everything
happens inside the party; one release a stage. Where the published program and its text disagree,
this follows what the accounting covers: noise once on the sum, Poisson sampling, a constant
denominator (which the matching loss cancels), exactly R T K real gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fedsynth.core.messages import Arrays, Release, Request
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.common.poisson_plan import sampled_share, step_event
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import (
    MatchedImages,
    MatchingConfig,
    PrivateMatchingConfig,
    match_run,
    set_bytes,
)
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum

LAPTOP = {"width": 32, "outer": 1, "inner": 0, "image_rate": 0.5, "image_init": 0.1, "updates": 3}


@dataclass(frozen=True)
class PSGConfig(PrivateMatchingConfig):
    """PSG's settings: those of the matching loop."""


class PSG(Method[PSGConfig]):
    """One-shot: the party runs the whole loop and releases its images."""

    name = "psg"
    summary = "Private set generation: images matched to clipped, noised gradients at home"
    source = "Chen et al. 2022, Private Set Generation with Discriminative Information"
    Config = PSGConfig
    presets = {
        "smoke": {**LAPTOP, "runs": 2},
        "laptop": {**LAPTOP, "runs": 15},
        "paper": {},
    }

    def inherits(self, cfg: PSGConfig) -> bool:
        return cfg.inner_set == "all"

    def plan(self, cfg: PSGConfig, stage: Stage, budget: Budget) -> Plan:
        parties = tuple(self._party_plan(cfg, stage, info, budget) for info in stage.parties)
        assumes = ("the number of records of each party", "the classes a party holds")
        return Plan(self.name, stage, budget, parties, assumes=assumes)

    def _party_plan(
        self, cfg: PSGConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        held = len(info.class_counts)
        return sampled_share(
            info,
            budget,
            rate=min(1.0, cfg.batch / info.records),
            steps=cfg.steps,
            bytes_up=set_bytes(stage, held, cfg.spc),
            cost=(
                ComputeCost("gradient", cfg.width, cfg.batch, cfg.steps),
                *cfg.server_cost(held),
            ),
        )

    def party(self, ctx: PartyContext[PSGConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        share = plan.of(private.info.party)
        scale = Normalizer.standard(plan.stage.data)

        def real_gradient(net: nn.Module, call: int) -> list[torch.Tensor]:
            mechanism = ClippedGradientSum(
                model=net,
                inputs=lambda pixels, _: scale.to_network(pixels),
                clip=cfg.clip,
                noise_multiplier=share.noise_multiplier,
                sampling_rate=share.sampling_rate,
                dtype=cfg.dtype,
            )
            return guard.apply(mechanism, private, call=call)

        matched = self.start(cfg, plan, private.info.party, request, guard.device)
        others = other_classes(cfg, plan, matched, request.arrays)
        with guard.reserve(step_event(share), cfg.steps):
            for run in private.rounds(cfg.runs, matched.state):
                match_run(matched, run, real_gradient, others)
        result = matched.result()
        return guard.release(result)

    def start(
        self, cfg: Any, plan: Plan, party: int, request: Request, device: torch.device
    ) -> MatchedImages:
        """What the loop moves: a party's first images."""
        return start_images(cfg, plan, party, request, device)

    def serve(self, ctx: ServerContext[PSGConfig]) -> Outcome:
        cfg = ctx.config
        return pooled(ctx.ask(ctx.parties, psg_request(cfg, ctx)))


def psg_request(cfg: MatchingConfig, parties: ServerContext[Any]) -> Request:
    """Ask for a set; with `inner_set=all` the earlier stages' images go along."""
    arrays = earlier_images(parties) if cfg.inner_set == "all" else {}
    return Request(arrays=arrays, numbers={"seed": parties.seed})


def earlier_images(parties: ServerContext[Any]) -> Arrays:
    """The images of the stages before, with their labels; nothing in the first stage."""
    if not parties.inherited:
        return {}
    before = SyntheticSet.join([s for s in parties.inherited if isinstance(s, SyntheticSet)])
    return before.to_arrays()


def start_images(
    cfg: MatchingConfig, plan: Plan, party: int, request: Request, device: torch.device
) -> MatchedImages:
    """The first images of a party, from public randomness."""
    key = (request.numbers["seed"], "psg", plan.stage.index, party)
    classes = sorted(plan.info(party).class_counts, key=plan.stage.classes.index)
    return MatchedImages(cfg, plan.stage.data, classes, key, device)


def other_classes(
    cfg: MatchingConfig, plan: Plan, matched: MatchedImages, known: Arrays
) -> SyntheticSet | None:
    """With `inner_set=all`: earlier stages' images (`known`), and noise for the classes still to
    come."""
    if cfg.inner_set == "own":
        return None
    have = set(matched.labels.tolist()) | set(known["labels"].tolist() if known else [])
    future = [c for c in range(plan.stage.data.classes) if c not in have for _ in range(cfg.spc)]
    noise = torch.randn(
        (len(future), *plan.stage.data.shape), generator=torch_generator(*matched.key, "future")
    )
    to_come = SyntheticSet(
        matched.scale.to_pixels(noise * cfg.image_init), torch.tensor(future, dtype=torch.int64)
    )
    if not known:
        return to_come
    return SyntheticSet.join([SyntheticSet.from_arrays(known), to_come])


def pooled(releases: list[Release]) -> SyntheticSet:
    """All parties' images together."""
    return SyntheticSet.join([release.synthetic_set() for release in releases])
