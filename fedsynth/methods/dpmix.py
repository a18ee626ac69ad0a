"""DPMix: noised means of random records of all classes, with noised means of their labels.

After Lee et al. (2019), as LDPDC's authors compared with it: a mixture is the mean of about L
random records, pixels and one-hot labels alike, plus Gaussian noise. Here both go into one vector,
so that one clipped sum and one noise cover them; records are drawn by Poisson sampling. What a
receiver trains on are soft labels, the noised shares cut off at zero. The hard label beside them
is the largest share's; a class that would have no image gets the one that suits it best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from fedsynth.core.enums import DataKind
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome, SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.common.class_indices import every_place
from fedsynth.methods.common.poisson_plan import sampled_share, step_event
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.privacy.mechanisms.sums import RecordSum


@dataclass(frozen=True)
class DPMixConfig:
    """DPMix's settings; the defaults are those of the comparison."""

    spc: int = setting(50, "mixtures for each class a party holds", at_least=1)
    group: int = setting(50, "expected records in a mixture (L)", at_least=1)
    label_share: float = setting(
        0.5, "share of a record's squared norm that its label gets", above=0, at_most=0.99
    )
    noise: float | None = setting(
        None, "noise over sensitivity; none: what the budget allows", above=0
    )

    def mixtures(self, info: PartyInfo) -> int:
        """How many mixtures a party releases."""
        return self.spc * len(info.class_counts)

    def rate(self, info: PartyInfo) -> float:
        """The probability that a record enters a mixture."""
        return min(1.0, self.group / info.records)


class DPMix(Method[DPMixConfig]):
    """One-shot: a party releases its mixtures."""

    name = "dpmix"
    summary = "Noised means of random records with their noised labels"
    source = "Lee et al. 2019, Synthesizing Differentially Private Datasets using Random Mixing"
    kinds = (DataKind.IMAGE, DataKind.TABLE)
    Config = DPMixConfig
    presets = {"smoke": {}, "laptop": {}, "paper": {}}

    def plan(self, cfg: DPMixConfig, stage: Stage, budget: Budget) -> Plan:
        parties = tuple(self._party_plan(cfg, stage, info, budget) for info in stage.parties)
        assumes = ("the number of records of each party", "the classes a party holds")
        return Plan(self.name, stage, budget, parties, assumes=assumes)

    def _party_plan(
        self, cfg: DPMixConfig, stage: Stage, info: PartyInfo, budget: Budget
    ) -> PartyPlan:
        mixtures = cfg.mixtures(info)
        return sampled_share(
            info,
            budget,
            rate=cfg.rate(info),
            steps=mixtures,
            noise=cfg.noise,
            bytes_up=mixtures * (4 * (math.prod(stage.data.shape) + stage.data.classes) + 8),
        )

    def party(self, ctx: PartyContext[DPMixConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        info, share, data = private.info, plan.of(private.info.party), plan.stage.data
        scale, pixels = Normalizer.symmetric(data), math.prod(data.shape)
        held = torch.tensor(sorted(info.class_counts))
        by_pixels = math.sqrt((1 - cfg.label_share) / pixels)
        by_label = math.sqrt(cfg.label_share)

        def vector(images: torch.Tensor, names: torch.Tensor) -> torch.Tensor:
            """Pixels and one-hot label of a record, of norm at most one together."""
            flat = scale.to_network(images).flatten(1)
            labels = F.one_hot(names, data.classes)[:, held].to(flat)
            return torch.cat([by_pixels * flat, by_label * labels], dim=1)

        mechanism = RecordSum(
            contribution=vector,
            width=pixels + len(held),
            clip=1.0,
            noise_multiplier=share.noise_multiplier,
            sampling_rate=share.sampling_rate,
        )
        with guard.reserve(step_event(share), share.steps):
            sums = [guard.apply(mechanism, private, call=number) for number in range(share.steps)]
        means = torch.stack([total for (total,) in sums]).cpu() / (
            share.sampling_rate * info.records
        )
        images = scale.to_pixels((means[:, :pixels] / by_pixels).reshape(-1, *data.shape))
        soft = torch.zeros(len(means), data.classes)
        shares = shares_of(means[:, pixels:] / by_label)
        soft[:, held] = shares
        return guard.release(SyntheticSet(images, held[every_place(shares)], soft))

    def serve(self, ctx: ServerContext[DPMixConfig]) -> Outcome:
        releases = ctx.ask(ctx.parties, Request())
        return SyntheticSet.join([release.synthetic_set() for release in releases])


def shares_of(noised: torch.Tensor) -> torch.Tensor:
    """Noised label means as shares that add up to one: negative ones are cut off, and where nothing
    is left, all classes are alike."""
    positive = noised.clamp_min(0)
    positive = torch.where(positive.sum(1, keepdim=True) > 0, positive, 1.0)
    return positive / positive.sum(1, keepdim=True)
