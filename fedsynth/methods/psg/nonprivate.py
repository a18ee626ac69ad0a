"""Gradient matching without noise: PSG's loop on exact mean gradients.

A non-private reference: how far the loop itself gets. The guard discloses the records, the ledger
says epsilon = infinity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fedsynth.core.model import (
    Budget,
    Method,
    Outcome,
    Parties,
    PartyPlan,
    Plan,
    Release,
    Request,
    Task,
    Work,
)
from fedsynth.core.randomness import torch_generator
from fedsynth.methods.psg.gradient_matching import MatchingConfig, match_run, set_bytes
from fedsynth.methods.psg.psg import LAPTOP, other_classes, pooled, psg_request, start_images
from fedsynth.nn.per_example.gradients import loss_and_gradients
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.party_data import Private


@dataclass(frozen=True)
class GradientMatchingConfig(MatchingConfig):
    """PSG's settings but for clipping."""


class GradientMatching(Method):
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

    def plan(self, cfg: GradientMatchingConfig, task: Task, budget: Budget) -> Plan:
        parties = tuple(
            PartyPlan(
                f.party,
                f.records,
                disclosed(),
                steps=cfg.steps,
                bytes_up=set_bytes(task, len(f.class_counts), cfg.spc),
                work=(
                    Work("train", cfg.width, cfg.batch, cfg.steps),
                    *cfg.curator_work(len(f.class_counts)),
                ),
            )
            for f in task.parties
        )
        return Plan(self.name, task, budget, parties)

    def party(
        self,
        cfg: GradientMatchingConfig,
        plan: Plan,
        private: Private,
        request: Request,
        guard: Guard,
    ) -> Release:
        records = guard.disclose(private)
        matched = start_images(cfg, plan, private.facts.party, request, guard.device)

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
        return guard.release({"images": result.images, "labels": result.labels})

    def serve(self, cfg: GradientMatchingConfig, plan: Plan, parties: Parties) -> Outcome:
        return pooled(parties.ask(parties.who, psg_request(cfg, parties)))
