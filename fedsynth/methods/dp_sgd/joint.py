"""Joint DP-SGD: the server trains one model on the gradients of all parties.

DP-FedSGD. In each round a party returns the clipped gradient sum of its own Poisson sample. The
server takes a plain SGD step with the sum over parties, divided by the public expected size of the
batch of all of them. With the noise added once (`noise_at=aggregate` or `distributed`) this is
DP-SGD on the pooled records, step by step; with `noise_at=party` the noise is sqrt(K) times as
large. `common.noise_placement` describes the trust that each placement needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import Plan
from fedsynth.core.types import Budget, Stage
from fedsynth.methods.common.noise_placement import JointConfig, aggregate_parties
from fedsynth.methods.common.one_shot import ALL_RECORDS
from fedsynth.methods.common.private_gradient import JointGradientMethod
from fedsynth.methods.dp_sgd.common import (
    ModelTraining,
    PrivateSGDConfig,
    clipped_gradient_sum,
    first_model,
    requested_model,
)
from fedsynth.methods.method import PartyContext, ServerContext
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum


@dataclass(frozen=True)
class DPSGDJointConfig(PrivateSGDConfig, JointConfig):
    """Settings of DP-SGD, whose batch is that of all parties together, and of joint methods."""


class DPSGDJoint(ModelTraining[DPSGDJointConfig], JointGradientMethod[DPSGDJointConfig]):
    """One round per step of SGD, with all parties of a stage."""

    name = "dp_sgd_joint"
    summary = "One model trained with DP-SGD on the sum of all parties' noised gradients"
    source = "this project: federated DP-SGD, one gradient per round"
    presets = {
        **ModelTraining.presets,
        "laptop": {**ModelTraining.presets["laptop"], "epochs": 2},
    }

    def plan(self, cfg: DPSGDJointConfig, stage: Stage, budget: Budget) -> Plan:
        records = sum(info.records for info in stage.parties)
        return self.gradient_plan(
            cfg,
            stage,
            budget,
            width=cfg.cost_width(stage.data),
            floats=sum(p.numel() for p in cfg.empty_model(stage.data).parameters()),
            sampling_rate=cfg.sampling_rate(records),
            steps=cfg.number_of_steps(records, budget),
            noise=cfg.noise,
            assumes=(ALL_RECORDS,),
        )

    def mechanism(
        self, ctx: PartyContext[DPSGDJointConfig], request: Request
    ) -> tuple[Sequence[str], ClippedGradientSum]:
        net = requested_model(ctx, request)
        return [name for name, _ in net.named_parameters()], clipped_gradient_sum(ctx, net)

    def serve(self, ctx: ServerContext[DPSGDJointConfig]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan.parties[0]
        model = first_model(ctx, self.name)
        state = {name: value.detach().clone() for name, value in model.state.items()}
        batch = plan.sampling_rate * sum(info.records for info in ctx.plan.stage.parties)
        for step in ctx.rounds(plan.steps, dict(state)):
            total = aggregate_parties(
                ctx,
                Request("gradient", step, arrays=state),
                shapes={name: value.shape for name, value in state.items()},
                bound=cfg.bound,
            )
            for name, value in total.arrays.items():
                state[name].sub_(value, alpha=cfg.learning_rate / batch)
        return cfg.released(ctx.plan.stage.data, state)
