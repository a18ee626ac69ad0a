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

from fedsynth.core.enums import DataKind, NoisePlacement
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import Plan
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.common.noise_placement import (
    JointConfig,
    aggregate_parties,
    with_noise_placement,
)
from fedsynth.methods.common.poisson_plan import sampled_share
from fedsynth.methods.dpdc.distribution_matching import (
    CondensedImages,
    Step,
    class_rates,
    expected_records,
    refuse_what_cannot_be_seen,
)
from fedsynth.methods.dpdc.ndpdc import NDPDC, NDPDCConfig
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.privacy.mechanisms.sums import ClassSums


@dataclass(frozen=True)
class NDPDCJointConfig(JointConfig, NDPDCConfig):
    """NDPDC's settings, where the noise is added, and who may be missing. The group is one over
    all parties."""


class NDPDCJoint(Method[NDPDCJointConfig]):
    """A conversation of I rounds about one set of images."""

    name = "ndpdc_joint"
    summary = "NDPDC as a conversation: one set, matched to the sum of all parties' feature sums"
    source = "this project, after Zheng and Li"
    paper_convention = NDPDC.paper_convention
    kinds = (DataKind.IMAGE, DataKind.TABLE)
    Config = NDPDCJointConfig
    presets = NDPDC.presets

    def plan(self, cfg: NDPDCJointConfig, stage: Stage, budget: Budget) -> Plan:
        refuse_what_cannot_be_seen(cfg, stage.data)
        rate = max(class_rates(cfg.group, together(stage.parties)).values())
        width = CondensedImages(cfg, stage.data, (), ("width",)).width
        classes = len(stage.classes)
        parties = tuple(
            with_noise_placement(
                cfg,
                stage,
                sampled_share(
                    info,
                    budget,
                    rate=rate,
                    steps=cfg.iterations,
                    noise=cfg.noise,
                    bytes_up=4 * classes * width * cfg.iterations,
                    cost=(
                        ComputeCost(
                            "train", cfg.width, round(rate * info.records / 3), cfg.iterations
                        ),
                    ),
                ),
            )
            for info in stage.parties
        )
        return Plan(
            self.name,
            stage,
            budget,
            parties,
            rounds=cfg.iterations,
            server_cost=(ComputeCost("train", cfg.width, classes * cfg.spc, cfg.iterations),),
            assumes=("the number of records of each class at each party",),
        )

    def party(self, ctx: PartyContext[NDPDCJointConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        share, stage = plan.of(private.info.party), plan.stage
        classes, key = tuple(sorted(stage.classes)), _key(request.numbers["seed"], stage)
        images, step, width = _public_step(
            cfg, stage.data, classes, key, device=guard.device, number=request.round
        )
        mechanism = ClassSums(
            contribution=partial(images.real_rows, step),
            width=width,
            clip=cfg.clip,
            noise_multiplier=share.noise_multiplier,
            sampling_rates=class_rates(cfg.group, together(stage.parties)),
        )
        (sums,) = guard.apply(
            mechanism, private, call=request.round, noise_at=NoisePlacement(cfg.at)
        )
        return guard.release({"sums": sums})

    def serve(self, ctx: ServerContext[NDPDCJointConfig]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        stage, key = plan.stage, _key(ctx.seed, plan.stage)
        rates = class_rates(cfg.group, together(stage.parties))
        condensed = CondensedImages(cfg, stage.data, rates, key, ctx.device)
        shapes = {"sums": (len(rates), condensed.width)}
        for number in ctx.rounds(cfg.iterations, condensed.state):
            total = aggregate_parties(
                cfg,
                plan,
                ctx,
                Request("features", number, numbers={"seed": ctx.seed}),
                shapes=shapes,
                bound=cfg.clip,
                noise_multiplier=plan.parties[0].noise_multiplier,
            )
            there = together([f for f in stage.parties if f.party in total.parties])
            scale = expected_records(rates, there) / cfg.spc
            sums = total.arrays["sums"].to(ctx.device)
            condensed.match(condensed.step(number), sums, scale, cfg.clip)
        return condensed.result()


def together(parties: Sequence[PartyInfo]) -> PartyInfo:
    """What is public about all these parties as if they were one."""
    counts: dict[int, int] = {}
    for info in parties:
        for name, count in info.class_counts.items():
            counts[name] = counts.get(name, 0) + count
    return PartyInfo(-1, sum(info.records for info in parties), counts)


def _key(seed: object, stage: Stage) -> tuple[object, ...]:
    return (seed, NDPDCJoint.name, stage.index)


@functools.lru_cache(maxsize=8)
def _public_step(
    cfg: NDPDCJointConfig,
    data: DatasetInfo,
    classes: tuple[int, ...],
    key: tuple[object, ...],
    *,
    device: torch.device,
    number: int,
) -> tuple[CondensedImages, Step, int]:
    """What is public about a step: kept, because many parties of one worker are asked about it."""
    images = CondensedImages(cfg, data, classes, key, device)
    return images, images.step(number), images.width
