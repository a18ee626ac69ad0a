"""Gradient matching without noise: PSG's loop on exact mean gradients.

A non-private reference: how far the loop itself gets. The guard discloses the records, the ledger
says epsilon = infinity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget, ComputeCost, Stage
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import MatchingConfig, match_run, set_bytes
from fedsynth.methods.psg.psg import LAPTOP, other_classes, pooled, psg_request, start_images
from fedsynth.nn.per_example.gradients import loss_and_gradients
from fedsynth.privacy.accounting.events import disclosed


@dataclass(frozen=True)
class GradientMatchingConfig(MatchingConfig):
    """PSG's settings but for clipping."""


class GradientMatching(Method[GradientMatchingConfig]):
    """PSG with no clipping and no noise."""

    name = "gradient_matching"
    summary = "NOT private: PSG's loop on exact gradients, to tell the loop from the noise"
    source = "Zhao et al. 2021, as the non-private case of Chen et al. 2022"
    private = False
    Config = GradientMatchingConfig
    presets = {
        "smoke": {**LAPTOP, "runs": 2},
        "laptop": {**LAPTOP, "runs": 8},
        "paper": {},
    }

    def inherits(self, cfg: GradientMatchingConfig) -> bool:
        return cfg.inner_set == "all"

    def plan(self, cfg: GradientMatchingConfig, stage: Stage, budget: Budget) -> Plan:
        parties = tuple(
            PartyPlan(
                f.party,
                f.records,
                disclosed(),
                steps=cfg.steps,
                bytes_up=set_bytes(stage, len(f.class_counts), cfg.spc),
                cost=(
                    ComputeCost("train", cfg.width, cfg.batch, cfg.steps),
                    *cfg.server_cost(len(f.class_counts)),
                ),
            )
            for f in stage.parties
        )
        return Plan(self.name, stage, budget, parties)

    def party(self, ctx: PartyContext[GradientMatchingConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        records = guard.disclose(private)
        matched = start_images(cfg, plan, private.info.party, request, guard.device)

        def real_gradient(net: nn.Module, call: int) -> list[torch.Tensor]:
            generator = torch_generator(*matched.key, "batch", call)
            chosen = torch.randperm(len(records.labels), generator=generator)[: cfg.batch]
            images = matched.scale.to_network(records.pixels(chosen)).to(guard.device)
            labels = records.labels[chosen].to(guard.device)
            return loss_and_gradients(net, images, labels)[1]

        others = other_classes(cfg, plan, matched, request.arrays)
        for run in private.rounds(cfg.runs, matched.state):
            match_run(matched, run, real_gradient, others)
        result = matched.result()
        return guard.release(result)

    def serve(self, ctx: ServerContext[GradientMatchingConfig]) -> Outcome:
        cfg = ctx.config
        return pooled(ctx.ask(ctx.parties, psg_request(cfg, ctx)))
