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

from fedsynth.core.model import (
    IMAGE,
    TABLE,
    Budget,
    Method,
    Outcome,
    Parties,
    PartyFacts,
    PartyPlan,
    Plan,
    Release,
    Request,
    SyntheticSet,
    Task,
)
from fedsynth.core.settings import setting
from fedsynth.data.normalization import Scale
from fedsynth.methods.common.class_indices import every_place
from fedsynth.methods.common.poisson_plan import sampled_share, step_event
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.party_data import Private


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

    def mixtures(self, facts: PartyFacts) -> int:
        """How many mixtures a party releases."""
        return self.spc * len(facts.class_counts)

    def rate(self, facts: PartyFacts) -> float:
        """The probability that a record enters a mixture."""
        return min(1.0, self.group / facts.records)


class DPMix(Method):
    """One-shot: a party releases its mixtures."""

    name = "dpmix"
    summary = "Noised means of random records with their noised labels"
    source = "Lee et al. 2019, Synthesizing Differentially Private Datasets using Random Mixing"
    kinds = (IMAGE, TABLE)
    Config = DPMixConfig
    presets = {"smoke": {}, "laptop": {}, "paper": {}}

    def plan(self, cfg: DPMixConfig, task: Task, budget: Budget) -> Plan:
        parties = tuple(self._party_plan(cfg, task, facts, budget) for facts in task.parties)
        assumes = ("the number of records of each party", "the classes a party holds")
        return Plan(self.name, task, budget, parties, assumes=assumes)

    def _party_plan(
        self, cfg: DPMixConfig, task: Task, facts: PartyFacts, budget: Budget
    ) -> PartyPlan:
        mixtures = cfg.mixtures(facts)
        return sampled_share(
            facts,
            budget,
            rate=cfg.rate(facts),
            steps=mixtures,
            noise=cfg.noise,
            bytes_up=mixtures * (4 * (math.prod(task.data.shape) + task.data.classes) + 8),
        )

    def party(
        self, cfg: DPMixConfig, plan: Plan, private: Private, request: Request, guard: Guard
    ) -> Release:
        facts, share, data = private.facts, plan.of(private.facts.party), plan.task.data
        scale, pixels = Scale.symmetric(data), math.prod(data.shape)
        held = torch.tensor(sorted(facts.class_counts))
        by_pixels = math.sqrt((1 - cfg.label_share) / pixels)
        by_label = math.sqrt(cfg.label_share)

        def vector(images: torch.Tensor, names: torch.Tensor) -> torch.Tensor:
            """Pixels and one-hot label of a record, of norm at most one together."""
            flat = scale.to_network(images).flatten(1)
            labels = F.one_hot(names, data.classes)[:, held].to(flat)
            return torch.cat([by_pixels * flat, by_label * labels], dim=1)

        with guard.reserve(step_event(share), share.steps):
            sums = [
                guard.noisy_sum(
                    private,
                    vector,
                    width=pixels + len(held),
                    bound=1.0,
                    noise_multiplier=share.noise_multiplier,
                    rate=share.sampling_rate,
                    call=mixture,
                )
                for mixture in range(share.steps)
            ]
        means = torch.stack(sums).cpu() / (share.sampling_rate * facts.records)
        images = scale.to_pixels((means[:, :pixels] / by_pixels).reshape(-1, *data.shape))
        soft = torch.zeros(len(means), data.classes)
        shares = shares_of(means[:, pixels:] / by_label)
        soft[:, held] = shares
        return guard.release({"images": images, "labels": held[every_place(shares)], "soft": soft})

    def serve(self, cfg: DPMixConfig, plan: Plan, parties: Parties) -> Outcome:
        releases = parties.ask(parties.who, Request())
        return SyntheticSet.join(
            [
                SyntheticSet(r.arrays["images"], r.arrays["labels"], r.arrays["soft"])
                for r in releases
            ]
        )


def shares_of(noised: torch.Tensor) -> torch.Tensor:
    """Noised label means as shares that add up to one: negative ones are cut off, and where nothing
    is left, all classes are alike."""
    positive = noised.clamp_min(0)
    positive = torch.where(positive.sum(1, keepdim=True) > 0, positive, 1.0)
    return positive / positive.sum(1, keepdim=True)
