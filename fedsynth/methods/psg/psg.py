"""PSG, private set generation: each party distils its records into a few private images.

Chen, Kerkouche, Fritz, "Private Set Generation with Discriminative Information", 2022. One release
per party: the loop of `gradient_matching` runs inside the party on gradients that are clipped per
record and noised, and only the images leave it.

Departures from the paper: where its program and its text disagree, this follows what the accounting
covers. Noise is added once, to the sum; batches are Poisson samples; the denominator is a constant,
which the matching loss cancels; and there are exactly R T K real gradients.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import torch
from torch import nn

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PartyPlan
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.methods.common.one_shot import OneShotMethod, set_bytes
from fedsynth.methods.common.poisson_plan import sampled_party_plan, step_event
from fedsynth.methods.common.private_gradient import batch_gradient_sum
from fedsynth.methods.common.request_arrays import earlier_set
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import (
    LAPTOP,
    MatchedImages,
    MatchingMethod,
    PrivateMatchingConfig,
    classes_of_party,
    inner_set_request,
    match_run,
    other_classes,
)

P = TypeVar("P", bound=PrivateMatchingConfig)


class PrivateSetGeneration(MatchingMethod[P], OneShotMethod[P]):
    """The algorithm of PSG; subclasses choose how the images are represented."""

    images: ClassVar[type[MatchedImages]] = MatchedImages

    def request(self, ctx: ServerContext[P]) -> Request:
        return inner_set_request(ctx)

    def party_plan(self, cfg: P, stage: Stage, info: PartyInfo, budget: Budget) -> PartyPlan:
        classes = len(info.class_counts)
        return sampled_party_plan(
            info,
            budget,
            sampling_rate=min(1.0, cfg.batch / info.records),
            steps=cfg.steps,
            bytes_up=(1 + len(cfg.kept_runs)) * set_bytes(stage, classes, cfg.spc),
            cost=(
                ComputeCost("gradient", cfg.width, cfg.batch, cfg.steps, cfg.dtype),
                *cfg.matching_cost(classes),
            ),
        )

    def synthesize(self, ctx: PartyContext[P], request: Request) -> SyntheticSet:
        cfg, plan = ctx.config, ctx.party_plan

        def real_gradient(net: nn.Module, call: int) -> list[torch.Tensor]:
            return ctx.guard.apply(batch_gradient_sum(ctx, net), ctx.data, call=call)

        key = ctx.random_key(request)
        images = self.images(cfg, ctx.dataset, classes_of_party(ctx), key, ctx.device)
        others = other_classes(cfg, ctx.dataset, images, earlier_set(ctx.dataset, request))
        with ctx.guard.reserve(step_event(plan), cfg.steps):
            for run in ctx.data.rounds(cfg.networks, images.state):
                match_run(images, run, real_gradient, others)
        return images.result()


class PSG(PrivateSetGeneration[PrivateMatchingConfig]):
    """PSG as published: the pixels are what is optimised."""

    name = "psg"
    summary = "Private set generation: each party matches images to its clipped, noised gradients"
    source = "Chen et al. 2022, Private Set Generation with Discriminative Information"
    presets = {"smoke": {**LAPTOP, "runs": 2}, "laptop": {**LAPTOP, "runs": 15}}
