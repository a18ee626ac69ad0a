"""Joint NDPDC: the curator owns the images, the parties answer with clipped feature sums.

NDPDC as a conversation (section on several owners in Zheng and Li, worked out here): in every step
the curator names a round; its random network and the augmentation of each class follow from public
randomness, so nothing large goes out. Every party embeds its own Poisson sample of each class, at
the rate that draws L records of the class from all parties together, and returns the clipped sums;
the images follow the sum over parties. A party answers for every class of the stage, also for those
it does not hold, so that what it answers does not tell. Who adds the noise: see `methods._joint`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from fedsynth.core.model import (
    IMAGE,
    TABLE,
    Budget,
    DataFacts,
    Method,
    Outcome,
    Parties,
    PartyFacts,
    Plan,
    Release,
    Request,
    Task,
    Work,
)
from fedsynth.methods.common.noise_placement import JointConfig, party_sum, placed
from fedsynth.methods.common.poisson_plan import sampled_share
from fedsynth.methods.dpdc.distribution_matching import (
    CondensedImages,
    Step,
    class_rates,
    expected_records,
    refuse_what_cannot_be_seen,
)
from fedsynth.methods.dpdc.ndpdc import NDPDC, NDPDCConfig
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.party_data import Private


@dataclass(frozen=True)
class NDPDCJointConfig(JointConfig, NDPDCConfig):
    """NDPDC's settings, where the noise is added, and who may be missing. The group is one over
    all parties."""


class NDPDCJoint(Method):
    """A conversation of I rounds about one set of images."""

    name = "ndpdc_joint"
    summary = "NDPDC as a conversation: one set, matched to the sum of all parties' feature sums"
    source = "this project, after Zheng and Li"
    paper_convention = NDPDC.paper_convention
    kinds = (IMAGE, TABLE)
    Config = NDPDCJointConfig
    presets = NDPDC.presets

    def plan(self, cfg: NDPDCJointConfig, task: Task, budget: Budget) -> Plan:
        refuse_what_cannot_be_seen(cfg, task.data)
        rate = max(class_rates(cfg.group, together(task.parties)).values())
        width = CondensedImages(cfg, task.data, (), ("width",)).width
        classes = len(task.classes)
        parties = tuple(
            placed(
                cfg,
                task,
                sampled_share(
                    facts,
                    budget,
                    rate=rate,
                    steps=cfg.iterations,
                    noise=cfg.noise,
                    bytes_up=4 * classes * width * cfg.iterations,
                    work=(
                        Work("train", cfg.width, round(rate * facts.records / 3), cfg.iterations),
                    ),
                ),
            )
            for facts in task.parties
        )
        return Plan(
            self.name,
            task,
            budget,
            parties,
            rounds=cfg.iterations,
            curator_work=(Work("train", cfg.width, classes * cfg.spc, cfg.iterations),),
            assumes=("the number of records of each class at each party",),
        )

    def party(
        self, cfg: NDPDCJointConfig, plan: Plan, private: Private, request: Request, guard: Guard
    ) -> Release:
        share, task = plan.of(private.facts.party), plan.task
        classes, key = tuple(sorted(task.classes)), _key(request.numbers["seed"], task)
        images, step, width = _public_step(
            cfg, task.data, classes, key, device=guard.device, number=request.round
        )
        sums = guard.noisy_class_sums(
            private,
            partial(images.real_rows, step),
            width=width,
            bound=cfg.clip,
            noise_multiplier=share.noise_multiplier,
            rates=class_rates(cfg.group, together(task.parties)),
            call=request.round,
            at=cfg.at,
        )
        return guard.release({"sums": sums})

    def serve(self, cfg: NDPDCJointConfig, plan: Plan, parties: Parties) -> Outcome:
        task, key = plan.task, _key(parties.seed, plan.task)
        rates = class_rates(cfg.group, together(task.parties))
        condensed = CondensedImages(cfg, task.data, rates, key, parties.device)
        shapes = {"sums": (len(rates), condensed.width)}
        for number in parties.rounds(cfg.iterations, condensed.state):
            total = party_sum(
                cfg,
                plan,
                parties,
                Request("features", number, numbers={"seed": parties.seed}),
                shapes=shapes,
                bound=cfg.clip,
                noise_multiplier=plan.parties[0].noise_multiplier,
            )
            there = together([f for f in task.parties if f.party in total.parties])
            scale = expected_records(rates, there) / cfg.spc
            sums = total.arrays["sums"].to(parties.device)
            condensed.match(condensed.step(number), sums, scale, cfg.clip)
        return condensed.result()


def together(parties: Sequence[PartyFacts]) -> PartyFacts:
    """What is public about all these parties as if they were one."""
    counts: dict[int, int] = {}
    for facts in parties:
        for name, count in facts.class_counts.items():
            counts[name] = counts.get(name, 0) + count
    return PartyFacts(-1, sum(facts.records for facts in parties), counts)


def _key(seed: object, task: Task) -> tuple[object, ...]:
    return (seed, NDPDCJoint.name, task.stage)


@functools.lru_cache(maxsize=8)
def _public_step(
    cfg: NDPDCJointConfig,
    data: DataFacts,
    classes: tuple[int, ...],
    key: tuple[object, ...],
    *,
    device: torch.device,
    number: int,
) -> tuple[CondensedImages, Step, int]:
    """What is public about a step: kept, because many parties of one worker are asked about it."""
    images = CondensedImages(cfg, data, classes, key, device)
    return images, images.step(number), images.width
