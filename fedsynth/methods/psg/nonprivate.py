"""Gradient matching without noise: PSG's loop on exact mean gradients.

A non-private reference (Zhao et al. 2021, Dataset Condensation with Gradient Matching) that tells
the effect of the loop from that of clipping and noise. Records are disclosed; the ledger says
epsilon = infinity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import ComputeCost, PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.methods.common.one_shot import NonPrivateReference, set_bytes
from fedsynth.methods.common.request_arrays import earlier_set
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import (
    LAPTOP,
    MatchedImages,
    MatchingConfig,
    MatchingMethod,
    classes_of_party,
    inner_set_request,
    match_run,
    other_classes,
)
from fedsynth.methods.psg.psg import PSG
from fedsynth.nn.per_example.gradients import loss_and_gradients


@dataclass(frozen=True)
class GradientMatchingConfig(MatchingConfig):
    """PSG's settings but for clipping."""


class GradientMatching(
    MatchingMethod[GradientMatchingConfig], NonPrivateReference[GradientMatchingConfig]
):
    """PSG with no clipping and no noise."""

    name = "gradient_matching"
    summary = "NOT private: PSG's loop on exact gradients, to separate the loop from the noise"
    source = "Zhao et al. 2021, as the non-private case of Chen et al. 2022"
    presets = {"smoke": {**LAPTOP, "runs": 2}, "laptop": {**LAPTOP, "runs": 8}}

    def request(self, ctx: ServerContext[GradientMatchingConfig]) -> Request:
        return inner_set_request(ctx)

    def set_size(self, cfg: GradientMatchingConfig, stage: Stage, info: PartyInfo) -> int:
        return (1 + len(cfg.kept_runs)) * set_bytes(stage, len(info.class_counts), cfg.spc)

    def work(
        self, cfg: GradientMatchingConfig, info: PartyInfo
    ) -> tuple[int, tuple[ComputeCost, ...]]:
        real = ComputeCost("train", cfg.width, cfg.batch, cfg.steps)
        return cfg.steps, (real, *cfg.matching_cost(len(info.class_counts)))

    def synthesize_from(
        self, ctx: PartyContext[GradientMatchingConfig], request: Request, records: Records
    ) -> SyntheticSet:
        cfg, stage = ctx.config, ctx.plan.stage
        key = (request.scalars["seed"], PSG.name, stage.index, ctx.party)  # starts where PSG does
        images = MatchedImages(cfg, ctx.dataset, classes_of_party(ctx), key, ctx.device)

        def real_gradient(net: nn.Module, call: int) -> list[torch.Tensor]:
            generator = torch_generator(*key, "batch", call)
            batch = torch.randperm(len(records.labels), generator=generator)[: cfg.batch]
            pixels = images.scale.to_network(records.pixels(batch)).to(ctx.device)
            return loss_and_gradients(net, pixels, records.labels[batch].to(ctx.device))[1]

        others = other_classes(cfg, ctx.dataset, images, earlier_set(ctx.dataset, request))
        for run in ctx.data.rounds(cfg.networks, images.state):
            match_run(images, run, real_gradient, others)
        return images.result()
