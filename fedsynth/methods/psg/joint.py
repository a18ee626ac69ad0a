"""Joint PSG: the curator owns the images and the network, the parties answer with gradients.

PSG turned into a conversation (no paper): in round t every party returns the clipped gradient sum
of its own Poisson sample for the curator's network, and the curator matches its images to the sum
over parties. What the curator receives is all anybody ever learns, so everything it does with it
is free. Who adds the noise: see `methods._joint`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import Plan
from fedsynth.core.types import Budget, ComputeCost, Stage
from fedsynth.data.normalization import Normalizer
from fedsynth.methods.common.noise_placement import (
    JointConfig,
    aggregate_parties,
    with_noise_placement,
)
from fedsynth.methods.common.poisson_plan import sampled_share
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.methods.psg.gradient_matching import MatchedImages, PrivateMatchingConfig, match_run
from fedsynth.methods.psg.psg import LAPTOP, earlier_images, other_classes
from fedsynth.nn.classifiers.convnet import convnet_from_state, empty_convnet
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum


@dataclass(frozen=True)
class PSGJointConfig(JointConfig, PrivateMatchingConfig):
    """PSG's settings, where the noise is added, and who may be missing."""


class PSGJoint(Method[PSGJointConfig]):
    """A conversation of R T K rounds about one set of images."""

    name = "psg_joint"
    summary = "PSG as a conversation: one set, matched to the sum of all parties' noised gradients"
    source = "this project, after Chen et al. 2022"
    Config = PSGJointConfig
    presets = {
        "smoke": {**LAPTOP, "runs": 2},
        "laptop": {**LAPTOP, "runs": 15},
        "paper": {},
    }

    def inherits(self, cfg: PSGJointConfig) -> bool:
        return cfg.inner_set == "all"

    def plan(self, cfg: PSGJointConfig, stage: Stage, budget: Budget) -> Plan:
        records = sum(info.records for info in stage.parties)
        rate = min(1.0, cfg.batch / records)
        floats = sum(p.numel() for p in empty_convnet(cfg.width, stage.data).parameters())
        parties = tuple(
            with_noise_placement(
                cfg,
                stage,
                sampled_share(
                    info,
                    budget,
                    rate=rate,
                    steps=cfg.steps,
                    bytes_up=floats * 4 * cfg.steps,
                    bytes_down=floats * 4 * cfg.steps,
                    cost=(
                        ComputeCost("gradient", cfg.width, round(rate * info.records), cfg.steps),
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
            rounds=cfg.steps,
            server_cost=cfg.server_cost(len(stage.classes)),
            assumes=("the number of records of all parties together", "the classes of a stage"),
        )

    def party(self, ctx: PartyContext[PSGJointConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        net = convnet_from_state(cfg.width, plan.stage.data, request.arrays, guard.device)
        share = plan.of(private.info.party)
        scale = Normalizer.standard(plan.stage.data)
        mechanism = ClippedGradientSum(
            model=net,
            inputs=lambda pixels, _: scale.to_network(pixels),
            clip=cfg.clip,
            noise_multiplier=share.noise_multiplier,
            sampling_rate=share.sampling_rate,
            dtype=cfg.dtype,
        )
        sums = guard.apply(mechanism, private, call=request.round, noise_at=NoisePlacement(cfg.at))
        names = [name for name, _ in net.named_parameters()]
        return guard.release(dict(zip(names, sums, strict=True)))

    def serve(self, ctx: ServerContext[PSGJointConfig]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        key = (ctx.seed, self.name, plan.stage.index)
        matched = MatchedImages(cfg, plan.stage.data, plan.stage.classes, key, ctx.device)

        def real_gradient(net: nn.Module, call: int) -> list[torch.Tensor]:
            state = {name: value.detach().cpu() for name, value in net.state_dict().items()}
            total = aggregate_parties(
                cfg,
                plan,
                ctx,
                Request("gradient", call, arrays=state),
                shapes={name: value.shape for name, value in net.named_parameters()},
                bound=cfg.clip,
                noise_multiplier=plan.parties[0].noise_multiplier,
            )
            return [value.to(ctx.device) for value in total.arrays.values()]

        known = earlier_images(ctx) if cfg.inner_set == "all" else {}
        others = other_classes(cfg, plan, matched, known)
        for run in ctx.rounds(cfg.runs, matched.state):
            match_run(matched, run, real_gradient, others)
        return matched.result()
