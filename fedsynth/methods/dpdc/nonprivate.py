"""Distribution matching without noise: NDPDC's loop on exact mean features.

A non-private reference (Zhao, Bilen, "Dataset Condensation with Distribution Matching", 2023) that
tells the effect of the loop from that of clipping and noise. Records are disclosed; the ledger says
epsilon = infinity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.methods.common.one_shot import NonPrivateReference, set_bytes
from fedsynth.methods.dpdc.distribution_matching import (
    CondensedImages,
    DistributionConfig,
    check_network,
)
from fedsynth.methods.method import PartyContext


@dataclass(frozen=True)
class DMConfig(DistributionConfig):
    """Distribution matching's settings; the defaults are the published ones."""

    iterations: int = setting(20000, "fresh networks, one step of the images each", at_least=1)
    batch: int = setting(256, "real records per class and step", at_least=1)


class DM(NonPrivateReference[DMConfig]):
    """NDPDC with no clipping and no noise."""

    name = "dm"
    summary = (
        "NOT private: NDPDC's loop on exact mean features, to separate the loop from the noise"
    )
    source = "Zhao and Bilen 2023, Dataset Condensation with Distribution Matching"
    kinds = (DataKind.IMAGE, DataKind.TABLE)
    presets = {
        "smoke": {"width": 32, "image_learning_rate": 10.0, "iterations": 10, "batch": 64},
        "laptop": {"width": 32, "image_learning_rate": 10.0, "iterations": 300, "batch": 64},
    }

    def check(self, cfg: DMConfig, data: DatasetInfo) -> None:
        check_network(cfg, data)

    def set_size(self, cfg: DMConfig, stage: Stage, info: PartyInfo) -> int:
        return set_bytes(stage, len(info.class_counts), cfg.spc)

    def work(self, cfg: DMConfig, info: PartyInfo) -> tuple[int, tuple[ComputeCost, ...]]:
        images = len(info.class_counts) * (cfg.spc + cfg.batch // 3)  # no backward pass for real
        return cfg.iterations, (ComputeCost("train", cfg.width, images, cfg.iterations),)

    def synthesize_from(
        self, ctx: PartyContext[DMConfig], request: Request, records: Records
    ) -> SyntheticSet:
        cfg, classes = ctx.config, sorted(ctx.info.class_counts)
        key = ctx.random_key(request)
        condensed = CondensedImages(cfg, ctx.dataset, classes, key, ctx.device)
        scale = torch.full((len(classes),), 1 / cfg.spc)
        members = [torch.nonzero(records.labels == label).flatten() for label in classes]
        for number in ctx.data.rounds(cfg.iterations, condensed.state):
            step, generator = condensed.step(number), torch_generator(*key, "batch", number)
            batches = [
                indices[torch.randperm(len(indices), generator=generator)[: cfg.batch]]
                for indices in members
            ]
            batch = torch.cat(batches)
            pixels = records.pixels(batch).to(ctx.device)
            rows = condensed.real_rows(step, pixels, records.labels[batch])
            means = [part.mean(0) for part in rows.split([len(indices) for indices in batches])]
            condensed.match(step, torch.stack(means), scale, bound=None)
        return condensed.result()
