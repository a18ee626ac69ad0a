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

from fedsynth.core.device import CPU, moved
from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import Plan
from fedsynth.core.types import Budget, Stage
from fedsynth.methods.common.noise_placement import (
    JointConfig,
    aggregate_parties,
)
from fedsynth.methods.common.one_shot import ALL_RECORDS, STAGE_CLASSES
from fedsynth.methods.common.private_gradient import JointGradientMethod, batch_gradient_sum
from fedsynth.methods.common.request_arrays import earlier_set
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import (
    LAPTOP,
    MatchedImages,
    MatchingMethod,
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


class PSGJoint(MatchingMethod[PSGJointConfig], JointGradientMethod[PSGJointConfig]):
    """A joint release of one set of images in R T K rounds."""

    name = "psg_joint"
    summary = "Joint PSG: one set, matched to the sum of all parties' noised gradients"
    source = "this project, after Chen et al. 2022"
    presets = {"smoke": {**LAPTOP, "runs": 2}, "laptop": {**LAPTOP, "runs": 15}}

    def plan(self, cfg: PSGJointConfig, stage: Stage, budget: Budget) -> Plan:
        return self.gradient_plan(
            cfg,
            stage,
            budget,
            width=cfg.width,
            sampling_rate=min(1.0, cfg.batch / sum(info.records for info in stage.parties)),
            steps=cfg.steps,
            server_cost=cfg.matching_cost(len(stage.classes)),
            assumes=(ALL_RECORDS, STAGE_CLASSES),
        )

    def mechanism(
        self, ctx: PartyContext[PSGJointConfig], request: Request
    ) -> tuple[Sequence[str], ClippedGradientSum]:
        arrays = request.exact_arrays(empty_convnet(ctx.config.width, ctx.dataset).state_dict())
        net = convnet_from_state(ctx.config.width, ctx.dataset, arrays, ctx.device)
        return [name for name, _ in net.named_parameters()], batch_gradient_sum(ctx, net)

    def serve(self, ctx: ServerContext[PSGJointConfig]) -> SyntheticSet:
        cfg, stage = ctx.config, ctx.plan.stage
        key = ctx.plan.random_key(ctx.seed)
        images = MatchedImages(cfg, stage.data, stage.classes, key, ctx.device)

        def real_gradient(net: nn.Module, call: int) -> list[torch.Tensor]:
            state = net.state_dict()
            on_cpu = moved([value.detach() for value in state.values()], torch.device(CPU))
            weights = dict(zip(state, on_cpu, strict=True))
            total = aggregate_parties(
                ctx,
                Request("gradient", call, arrays=weights),
                shapes={name: value.shape for name, value in net.named_parameters()},
                bound=gradient_sensitivity(cfg.clip),
            )
            return moved(list(total.arrays.values()), ctx.device)

        others = other_classes(
            cfg, stage.data, images, earlier_set(stage.data, inner_set_request(ctx))
        )
        for run in ctx.rounds(cfg.networks, images.state):
            match_run(images, run, real_gradient, others)
        return images.result()
