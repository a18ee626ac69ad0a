"""DPMix: noised means of random records of all classes, with noised means of their labels.

After Lee et al., "Synthesizing Differentially Private Datasets using Random Mixing", 2019, as the
authors of LDPDC compared with it: a mixture is the mean of about L random records, pixels and
one-hot labels alike, plus Gaussian noise. Pixels and label form one vector, so that one clipped sum
and one noise cover both; records are drawn by Poisson sampling.

A receiver trains on soft labels: the noised shares, cut off at zero. The hard label beside them is
the class of the largest share; a class that would have no image gets the one that fits it best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from fedsynth.core.enums import DataKind
from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PartyPlan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.common.class_indices import argmax_covering_classes
from fedsynth.methods.common.one_shot import OneShotMethod
from fedsynth.methods.common.poisson_plan import record_rate, sampled_party_plan, step_event
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.privacy.mechanisms.sums import RecordSum


@dataclass(frozen=True)
class DPMixConfig:
    """DPMix's settings; the defaults are those of the comparison."""

    spc: int = setting(50, "mixtures per class that a party holds", at_least=1, at_most=1_000_000)
    group: int = setting(50, "expected records in a mixture (L)", at_least=1)
    label_share: float = setting(
        0.5, "share of a record's squared norm that its label gets", above=0, at_most=0.99
    )
    noise: float | None = setting(
        None, "noise over sensitivity; default: what the budget allows", above=0
    )

    def mixtures(self, info: PartyInfo) -> int:
        """The number of mixtures that a party releases."""
        return self.spc * len(info.class_counts)


class DPMix(OneShotMethod[DPMixConfig]):
    """A party releases its mixtures."""

    name = "dpmix"
    summary = "Noised means of random records with their noised labels"
    source = "Lee et al. 2019, Synthesizing Differentially Private Datasets using Random Mixing"
    kinds = (DataKind.IMAGE, DataKind.TABLE)

    def request(self, ctx: ServerContext[DPMixConfig]) -> Request:
        return Request()  # DPMix has no public randomness

    def party_plan(
        self, cfg: DPMixConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        mixtures = cfg.mixtures(info)
        return sampled_party_plan(
            info,
            budget,
            sampling_rate=record_rate(cfg.group, info),
            steps=mixtures,
            noise=cfg.noise,
            bytes_up=mixtures * (4 * (math.prod(stage.data.shape) + stage.data.classes) + 8),
        )

    def synthesize(self, ctx: PartyContext[DPMixConfig], request: Request) -> SyntheticSet:
        cfg, plan, data = ctx.config, ctx.party_plan, ctx.dataset
        scale, width = Normalizer.symmetric(data), math.prod(data.shape)
        classes = torch.tensor(sorted(ctx.info.class_counts))
        pixel_weight = math.sqrt((1 - cfg.label_share) / width)
        label_weight = math.sqrt(cfg.label_share)

        def vectors(pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            """Pixels and one-hot label of each record, of norm at most one together."""
            flat = scale.to_network(pixels).flatten(1)
            one_hot = F.one_hot(labels, data.classes)[:, classes].to(flat)
            return torch.cat([pixel_weight * flat, label_weight * one_hot], dim=1)

        mechanism = RecordSum(
            contribution=vectors,
            width=width + len(classes),
            clip=1.0,
            noise_multiplier=plan.noise_multiplier,
            sampling_rate=plan.sampling_rate,
        )
        with ctx.guard.reserve(step_event(plan), plan.steps):
            groups = [ctx.guard.apply(mechanism, ctx.data, call=i) for i in range(plan.steps)]
        sums = torch.stack([mixture for (mixture,) in groups]).cpu()
        means = sums / (plan.sampling_rate * ctx.info.records)
        images = scale.to_pixels((means[:, :width] / pixel_weight).reshape(-1, *data.shape))
        shares = label_shares(means[:, width:] / label_weight)
        soft = torch.zeros(len(means), data.classes)
        soft[:, classes] = shares
        return SyntheticSet(images, classes[argmax_covering_classes(shares)], soft)


def label_shares(noised: torch.Tensor) -> torch.Tensor:
    """Noised label means as shares that sum to one.

    Negative means count as zero; where none is positive, the shares are equal."""
    positive = noised.clamp_min(0)
    positive = torch.where(positive.sum(1, keepdim=True) > 0, positive, 1.0)
    return positive / positive.sum(1, keepdim=True)
