"""Joint NDPDC: the server holds one set of images, and the parties answer with feature sums.

NDPDC for several data holders (a section of Zheng and Li, worked out here). In every step the
server names a round; its random network and the augmentation of each class follow from public
randomness, so requests are small. Every party embeds its own Poisson sample of each class, at the
rate that draws L records of the class from all parties together, and returns the clipped sums; the
images follow the sum over parties. A party answers for every class of the stage, also for those
that it does not hold, so the form of its answer does not tell which it holds.
`common.noise_placement` describes where the noise is added.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PARTY_CLASS_COUNTS, Plan
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.common.noise_placement import (
    JointConfig,
    JointMethod,
    aggregate_parties,
)
from fedsynth.methods.common.poisson_plan import class_rates, expected_records
from fedsynth.methods.dpdc.distribution_matching import CondensedImages, Step, check_network
from fedsynth.methods.dpdc.ndpdc import NDPDC, NDPDCConfig
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.privacy.mechanisms.sums import ClassSums


@dataclass(frozen=True)
class NDPDCJointConfig(JointConfig, NDPDCConfig):
    """NDPDC's settings, whose group is drawn from all parties together, and those of joint
    methods."""


class NDPDCJoint(JointMethod[NDPDCJointConfig]):
    """A joint release of one set of images in I rounds."""

    name = "ndpdc_joint"
    summary = "Joint NDPDC: one set, matched to the sum of all parties' feature sums"
    source = "this project, after Zheng and Li"
    paper_convention = NDPDC.paper_convention
    kinds = (DataKind.IMAGE, DataKind.TABLE)
    presets = NDPDC.presets

    def plan(self, cfg: NDPDCJointConfig, stage: Stage, budget: Budget) -> Plan:
        check_network(cfg, stage.data)
        rate = max(class_rates(cfg.group, combined(stage.parties)).values())
        width = CondensedImages(cfg, stage.data, (), ("width",)).width
        classes = len(stage.classes)
        return self.sampled_plan(
            cfg,
            stage,
            budget,
            sampling_rate=rate,
            steps=cfg.iterations,
            noise=cfg.noise,
            bytes_up=4 * classes * width * cfg.iterations,
            party_cost=lambda info: ComputeCost(
                "train", cfg.width, round(rate * info.records / 3), cfg.iterations
            ),
            server_cost=(ComputeCost("train", cfg.width, classes * cfg.spc, cfg.iterations),),
            assumes=(PARTY_CLASS_COUNTS,),
        )

    def mechanism(
        self, ctx: PartyContext[NDPDCJointConfig], request: Request
    ) -> tuple[Sequence[str], ClassSums]:
        cfg, stage = ctx.config, ctx.plan.stage
        step = _public_step(
            cfg,
            stage.data,
            tuple(sorted(stage.classes)),
            ctx.plan.random_key(request.scalar("seed")),
            device=ctx.device,
            number=request.round,
        )
        mechanism = ClassSums(
            contribution=partial(step.images.real_rows, step.step),
            width=step.images.width,
            clip=cfg.clip,
            noise_multiplier=ctx.party_plan.noise_multiplier,
            sampling_rates=class_rates(cfg.group, combined(stage.parties)),
        )
        return ["sums"], mechanism

    def serve(self, ctx: ServerContext[NDPDCJointConfig]) -> SyntheticSet:
        cfg, stage = ctx.config, ctx.plan.stage
        rates = class_rates(cfg.group, combined(stage.parties))
        key = ctx.plan.random_key(ctx.seed)
        condensed = CondensedImages(cfg, stage.data, rates, key, ctx.device)
        shapes = {"sums": (len(rates), condensed.width)}
        for number in ctx.rounds(cfg.iterations, condensed.state):
            request = Request("features", number, scalars={"seed": ctx.seed})
            total = aggregate_parties(ctx, request, shapes=shapes, bound=cfg.clip)
            present = combined([info for info in stage.parties if info.party in total.parties])
            scale = expected_records(rates, present) / cfg.spc
            sums = total.arrays["sums"].to(ctx.device)
            condensed.match(condensed.step(number), sums, scale, cfg.clip)
        return condensed.result()


def combined(parties: Sequence[PartyInfo]) -> PartyInfo:
    """The public facts of several parties as if they were one."""
    counts: dict[int, int] = {}
    for info in parties:
        for label, count in info.class_counts.items():
            counts[label] = counts.get(label, 0) + count
    return PartyInfo(-1, sum(info.records for info in parties), counts)


@dataclass(frozen=True)
class _PublicStep:
    """The public part of one step."""

    images: CondensedImages
    step: Step


@functools.lru_cache(maxsize=8)
def _public_step(
    cfg: NDPDCJointConfig,
    data: DatasetInfo,
    classes: tuple[int, ...],
    key: tuple[object, ...],
    *,
    device: torch.device,
    number: int,
) -> _PublicStep:
    """The public part of step `number`; cached, because one worker serves many parties."""
    images = CondensedImages(cfg, data, classes, key, device)
    return _PublicStep(images, images.step(number))
