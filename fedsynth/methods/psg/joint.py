"""Joint PSG: the server holds one set of images, and the parties answer with gradients.

PSG as a joint method (of this project, not from the paper): in each of R T K rounds every party
returns the clipped gradient sum of its own Poisson sample for the server's network, and the server
matches its images to the sum over parties. The server does nothing private with what it receives,
so everything it computes is post-processing. `common.noise_placement` describes where the noise is
added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import Plan
from fedsynth.core.types import Budget, ComputeCost, Stage
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.common.noise_placement import (
    JointConfig,
    JointMethod,
    aggregate_parties,
)
from fedsynth.methods.common.one_shot import ALL_RECORDS, STAGE_CLASSES
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import (
    LAPTOP,
    MatchedImages,
    PrivateMatchingConfig,
    inner_set_request,
    match_run,
    other_classes,
)
from fedsynth.nn.classifiers.convnet import convnet_from_state, empty_convnet
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum, gradient_sensitivity


@dataclass(frozen=True)
class PSGJointConfig(JointConfig, PrivateMatchingConfig):
    """PSG's settings, and those of joint methods."""


class PSGJoint(JointMethod[PSGJointConfig]):
    """A joint release of one set of images in R T K rounds."""

    name = "psg_joint"
    summary = "Joint PSG: one set, matched to the sum of all parties' noised gradients"
    source = "this project, after Chen et al. 2022"
    Config = PSGJointConfig
    presets = {"smoke": {**LAPTOP, "runs": 2}, "laptop": {**LAPTOP, "runs": 15}}

    def at_budget(
        self, cfg: PSGJointConfig, stages: Sequence[Stage], budget: Budget
    ) -> PSGJointConfig:
        return cfg.at_budget(len(stages), budget.epsilon)

    def inherits(self, cfg: PSGJointConfig) -> bool:
        return cfg.inner_set == "all"

    def plan(self, cfg: PSGJointConfig, stage: Stage, budget: Budget) -> Plan:
        rate = min(1.0, cfg.batch / sum(info.records for info in stage.parties))
        floats = sum(p.numel() for p in empty_convnet(cfg.width, stage.data).parameters())
        return self.sampled_plan(
            cfg,
            stage,
            budget,
            sampling_rate=rate,
            steps=cfg.steps,
            bytes_up=4 * floats * cfg.steps,
            bytes_down=4 * floats * cfg.steps,
            party_cost=lambda info: ComputeCost(
                "gradient", cfg.width, round(rate * info.records), cfg.steps
            ),
            server_cost=cfg.matching_cost(len(stage.classes)),
            assumes=(ALL_RECORDS, STAGE_CLASSES),
        )

    def mechanism(
        self, ctx: PartyContext[PSGJointConfig], request: Request
    ) -> tuple[Sequence[str], ClippedGradientSum]:
        cfg, plan = ctx.config, ctx.party_plan
        net = convnet_from_state(cfg.width, ctx.dataset, request.arrays, ctx.device)
        scale = Normalizer.standard(ctx.dataset)
        mechanism = ClippedGradientSum(
            model=net,
            inputs=lambda pixels, _: scale.to_network(pixels),
            clip=cfg.clip,
            noise_multiplier=plan.noise_multiplier,
            sampling_rate=plan.sampling_rate,
            dtype=cfg.dtype,
        )
        return [name for name, _ in net.named_parameters()], mechanism

    def serve(self, ctx: ServerContext[PSGJointConfig]) -> SyntheticSet:
        cfg, stage = ctx.config, ctx.plan.stage
        key = ctx.plan.random_key(ctx.seed)
        images = MatchedImages(cfg, stage.data, stage.classes, key, ctx.device)

        def real_gradient(net: nn.Module, call: int) -> list[torch.Tensor]:
            weights = {name: value.detach().cpu() for name, value in net.state_dict().items()}
            total = aggregate_parties(
                ctx,
                Request("gradient", call, arrays=weights),
                shapes={name: value.shape for name, value in net.named_parameters()},
                bound=gradient_sensitivity(cfg.clip),
            )
            return [value.to(ctx.device) for value in total.arrays.values()]

        others = other_classes(cfg, stage.data, images, inner_set_request(ctx).arrays)
        for run in ctx.rounds(cfg.networks, images.state):
            match_run(images, run, real_gradient, others)
        return images.result()
