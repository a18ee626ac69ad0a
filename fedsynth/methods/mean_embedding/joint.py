"""Joint DP-MERF: one mean embedding of all parties' records, from the sum of their sums.

The curator broadcasts the seed of the random features; every party answers with the summed features
of each class of the stage, also of those it does not hold, and the curator divides by the public
number of all records and trains the generator as ever. One round, or two with `labels=noised`. Who
adds the noise: see `methods._joint`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedsynth.core.model import Budget, Outcome, Parties, Plan, Release, Request, Task
from fedsynth.methods.common.noise_placement import JointConfig, party_sum, placed
from fedsynth.methods.mean_embedding.base import FeatureMap, One, label_shares
from fedsynth.methods.mean_embedding.dp_merf import DPMERF, DPMERFConfig
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.party_data import Private

EMBEDDING, WEIGHTS = "embedding", "weights"


@dataclass(frozen=True)
class DPMERFJointConfig(JointConfig, DPMERFConfig):
    """DP-MERF's settings, where the noise is added, and who may be missing."""


class DPMERFJoint(DPMERF):
    """A conversation of one round, or of two."""

    name = "dp_merf_joint"
    summary = "DP-MERF as a conversation: one noised mean embedding of all parties together"
    source = "this project, after Harder et al. 2021"
    Config = DPMERFJointConfig

    def plan(self, cfg: Any, task: Task, budget: Budget) -> Plan:
        alone = super().plan(cfg, task, budget)
        noised = cfg.labels == "noised"
        up = 4 * len(task.classes) * (self.width(cfg, task.data) + noised)
        parties = tuple(placed(cfg, task, replace(p, bytes_up=up)) for p in alone.parties)
        assumes = ("the number of records of all parties together", "the classes of a stage")
        return replace(alone, parties=parties, rounds=1 + noised, assumes=assumes)

    def party(
        self, cfg: Any, plan: Plan, private: Private, request: Request, guard: Guard
    ) -> Release:
        rows: FeatureMap = One()
        if request.kind == EMBEDDING:
            rows = self.features(cfg, plan.task.data, request.numbers["seed"])
        sums = guard.noisy_class_sums(
            private,
            lambda pixels, _: rows(pixels),
            width=rows.width,
            bound=1.0,
            noise_multiplier=plan.of(private.facts.party).noise_multiplier,
            rates=dict.fromkeys(plan.task.classes, 1.0),
            call=request.round,
            at=cfg.at,
        )
        return guard.release({"sums": sums})

    def serve(self, cfg: Any, plan: Plan, parties: Parties) -> Outcome:
        classes = len(plan.task.classes)
        wanted = self._mean(cfg, plan, parties, Request(EMBEDDING), self.width(cfg, plan.task.data))
        weights = torch.full((classes,), 1 / classes)
        if cfg.labels == "noised":
            weights = label_shares(self._mean(cfg, plan, parties, Request(WEIGHTS, 1), 1))
        return self.generated(cfg, plan, parties, wanted, weights)

    @staticmethod
    def _mean(cfg: Any, plan: Plan, parties: Parties, request: Request, width: int) -> Tensor:
        """The noised mean over the records of all parties that answered, a row a class."""
        total = party_sum(
            cfg,
            plan,
            parties,
            replace(request, numbers={"seed": parties.seed}),
            shapes={"sums": (len(plan.task.classes), width)},
            bound=1.0,
            noise_multiplier=plan.parties[0].noise_multiplier,
        )
        return total.arrays["sums"] / sum(plan.facts(p).records for p in total.parties)
