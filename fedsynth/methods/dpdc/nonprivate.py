"""Distribution matching without noise: NDPDC's loop on exact mean features.

A non-private reference: how far the loop itself gets. The guard discloses the records, the ledger
says epsilon = infinity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.randomness import torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, ComputeCost, Stage
from fedsynth.methods.dpdc.distribution_matching import (
    CondensedImages,
    DistributionConfig,
    Step,
    refuse_what_cannot_be_seen,
)
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import set_bytes
from fedsynth.methods.psg.psg import pooled
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.party_data import Records


@dataclass(frozen=True)
class DMConfig(DistributionConfig):
    """Distribution matching's settings; the defaults are the published ones."""

    iterations: int = setting(20000, "fresh networks, a step of the images each", at_least=1)
    batch: int = setting(256, "real records of a class in a step", at_least=1)


class DM(Method[DMConfig]):
    """NDPDC with no clipping and no noise."""

    name = "dm"
    summary = "NOT private: NDPDC's loop on exact mean features, to tell the loop from the noise"
    source = "Zhao and Bilen 2023, Dataset Condensation with Distribution Matching"
    private = False
    kinds = (DataKind.IMAGE, DataKind.TABLE)
    Config = DMConfig
    presets = {
        "smoke": {"width": 32, "image_rate": 10.0, "iterations": 10, "batch": 64},
        "laptop": {"width": 32, "image_rate": 10.0, "iterations": 300, "batch": 64},
        "paper": {},
    }

    def plan(self, cfg: DMConfig, stage: Stage, budget: Budget) -> Plan:
        def share(party: int, records: int, held: int) -> PartyPlan:
            images = held * (cfg.spc + cfg.batch // 3)  # the real ones go forward only
            return PartyPlan(
                party,
                records,
                disclosed(),
                steps=cfg.iterations,
                bytes_up=set_bytes(stage, held, cfg.spc),
                cost=(ComputeCost("train", cfg.width, images, cfg.iterations),),
            )

        refuse_what_cannot_be_seen(cfg, stage.data)
        parties = tuple(share(f.party, f.records, len(f.class_counts)) for f in stage.parties)
        return Plan(self.name, stage, budget, parties)

    def party(self, ctx: PartyContext[DMConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        records, info = guard.disclose(private), private.info
        key = (request.numbers["seed"], self.name, plan.stage.index, info.party)
        classes = sorted(info.class_counts)
        condensed = CondensedImages(cfg, plan.stage.data, classes, key, guard.device)
        scale = torch.full((len(classes),), 1 / cfg.spc)
        for number in private.rounds(cfg.iterations, condensed.state):
            step = condensed.step(number)
            real = self._means(cfg, condensed, step, number, records)
            condensed.match(step, real, scale, bound=None)
        result = condensed.result()
        return guard.release(result)

    @staticmethod
    def _means(
        cfg: DMConfig, condensed: CondensedImages, step: Step, number: int, records: Records
    ) -> torch.Tensor:
        """The mean features of a batch of each class, drawn without replacement."""
        generator = torch_generator(*condensed.key, "batch", number)
        chosen = []
        for name in condensed.classes:
            mine = torch.nonzero(records.labels == name).flatten()
            chosen.append(mine[torch.randperm(len(mine), generator=generator)[: cfg.batch]])
        everyone = torch.cat(chosen)
        pixels = records.pixels(everyone).to(condensed.images.device)
        rows = condensed.real_rows(step, pixels, records.labels[everyone])
        sizes = [len(part) for part in chosen]
        return torch.stack([part.mean(0) for part in rows.split(sizes)])

    def serve(self, ctx: ServerContext[DMConfig]) -> Outcome:
        return pooled(ctx.ask(ctx.parties, Request(numbers={"seed": ctx.seed})))
