"""Joint DP-SGD: the curator owns one model, and every step goes by the gradients of all parties.

DP-FedSGD. In each round a party returns the clipped gradient sum of its own Poisson sample, and the
curator takes a plain SGD step with the sum over parties, divided by the public expected size of the
batch over all of them. With the noise added once (`noise_at=aggregate` or `distributed`) this is
DP-SGD on the pooled records, step by step; with `noise_at=party` the noise is sqrt(K) times as
large. `common.noise_placement` says who is trusted with which placement.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome, ReleasedModel
from fedsynth.core.plan import Plan
from fedsynth.core.types import Budget, ComputeCost, Stage
from fedsynth.methods.common.noise_placement import (
    JointConfig,
    aggregate_parties,
    with_noise_placement,
)
from fedsynth.methods.common.poisson_plan import sampled_party_plan
from fedsynth.methods.dp_sgd.common import PrivateSGDConfig, first_model, private_gradient
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.nn.classifiers.convnet import convnet_from_state, empty_convnet


@dataclass(frozen=True)
class DPSGDJointConfig(PrivateSGDConfig, JointConfig):
    """DP-SGD's settings, whose batch is that of all parties together, and where the noise is
    added."""


class DPSGDJoint(Method[DPSGDJointConfig]):
    """A conversation of as many rounds as there are steps."""

    name = "dp_sgd_joint"
    summary = "One model trained with DP-SGD on the sum of all parties' noised gradients"
    source = "this project: federated DP-SGD, one gradient a round"
    Config = DPSGDJointConfig
    presets = {
        "smoke": {"width": 32, "epochs": 1, "rate": 1.0},
        "laptop": {"width": 32, "epochs": 2, "rate": 1.0},
        "paper": {},
    }

    def inherits(self, cfg: DPSGDJointConfig) -> bool:
        return True

    def plan(self, cfg: DPSGDJointConfig, stage: Stage, budget: Budget) -> Plan:
        records = sum(info.records for info in stage.parties)
        rate, steps = cfg.sampling_rate(records), cfg.steps(records)
        floats = sum(p.numel() for p in empty_convnet(cfg.width, stage.data).parameters())
        parties = tuple(
            with_noise_placement(
                cfg,
                stage,
                sampled_party_plan(
                    info,
                    budget,
                    sampling_rate=rate,
                    steps=steps,
                    bytes_up=4 * floats * steps,
                    bytes_down=4 * floats * steps,
                    cost=(ComputeCost("gradient", cfg.width, round(rate * info.records), steps),),
                ),
            )
            for info in stage.parties
        )
        assumes = ("the number of records of all parties together",)
        return Plan(self.name, stage, budget, parties, rounds=steps, assumes=assumes)

    def party(self, ctx: PartyContext[DPSGDJointConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        data, share = plan.stage.data, plan.of(private.info.party)
        net = convnet_from_state(cfg.width, data, request.arrays, guard.device)
        sums = private_gradient(
            cfg,
            guard,
            private,
            net,
            data=data,
            share=share,
            call=request.round,
            noise_at=cfg.placement,
        )
        names = [name for name, _ in net.named_parameters()]
        return guard.release(dict(zip(names, sums, strict=True)))

    def serve(self, ctx: ServerContext[DPSGDJointConfig]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        start = first_model(cfg, plan.stage.data, ctx, self.name, "model")
        state = {name: value.detach().clone() for name, value in start.state.items()}
        share = plan.parties[0]
        expected = share.sampling_rate * sum(info.records for info in plan.stage.parties)
        for step in ctx.rounds(share.steps, dict(state)):
            total = aggregate_parties(
                ctx,
                Request("gradient", step, arrays=state),
                shapes={name: value.shape for name, value in state.items()},
                bound=cfg.bound,
                noise_multiplier=share.noise_multiplier,
            )
            for name, value in total.arrays.items():
                state[name].sub_(value, alpha=cfg.rate / expected)
        return ReleasedModel(state, cfg.width)
