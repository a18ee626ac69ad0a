"""DP-SGD fine-tuning: a model travels from party to party, and each trains it on its own records.

The baseline of the continual comparison: only the model is passed on, so it forgets what it learned
from earlier parties. Poisson batches, gradients clipped per record, Gaussian noise on their sum, a
constant denominator, plain SGD. With one party it is the direct private training that synthetic
data are compared with. `topk` reduces gradients to their largest coordinates.
"""

from __future__ import annotations

import torch

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.methods.common.poisson_plan import sampled_party_plan, step_event
from fedsynth.methods.dp_sgd.common import (
    ModelTraining,
    PrivateSGDConfig,
    clipped_gradient_sum,
    first_model,
    requested_model,
)
from fedsynth.methods.method import PartyContext, ServerContext


class DPSGD(ModelTraining[PrivateSGDConfig]):
    """One round per party: it receives the model, trains it privately and returns it."""

    name = "dp_sgd"
    summary = "A model trained with DP-SGD by one party after another, without replay"
    source = "baseline of Chen et al. 2022 (class-incremental fine-tuning)"

    def plan(self, cfg: PrivateSGDConfig, stage: Stage, budget: Budget) -> Plan:
        model_bytes = 4 * sum(p.numel() for p in cfg.empty_model(stage.data).parameters())
        width = cfg.cost_width(stage.data)
        parties = tuple(
            self._party_plan(cfg, info, budget, model_bytes, width) for info in stage.parties
        )
        assumes = ("the number of records of each party",)
        return Plan(self.name, stage, budget, parties, rounds=len(parties), assumes=assumes)

    def _party_plan(
        self,
        cfg: PrivateSGDConfig,
        info: PartyInfo,
        budget: Budget,
        model_bytes: int,
        width: int,
    ) -> PartyPlan:
        steps = cfg.number_of_steps(info.records, budget)
        return sampled_party_plan(
            info,
            budget,
            sampling_rate=cfg.sampling_rate(info.records),
            steps=steps,
            noise=cfg.noise,
            bytes_up=model_bytes,
            bytes_down=model_bytes,
            cost=(ComputeCost("gradient", width, cfg.batch, steps, cfg.dtype),),
        )

    def party(self, ctx: PartyContext[PrivateSGDConfig], request: Request) -> Release:
        cfg, plan = ctx.config, ctx.party_plan
        net = requested_model(ctx, request)
        parameters: list[torch.Tensor] = list(net.parameters())
        batch = plan.sampling_rate * plan.records
        with ctx.guard.reserve(step_event(plan), plan.steps):
            for step in ctx.data.rounds(plan.steps, {"model": net}):
                sums = ctx.guard.apply(clipped_gradient_sum(ctx, net), ctx.data, call=step)
                with torch.no_grad():
                    torch._foreach_add_(parameters, sums, alpha=-cfg.learning_rate / batch)
        return ctx.guard.release(net.state_dict())

    def serve(self, ctx: ServerContext[PrivateSGDConfig]) -> Outcome:
        model = first_model(ctx, self.name)
        for position, party in enumerate(ctx.parties):
            request = Request("finetune", position, arrays=model.state)
            (release,) = ctx.ask([party], request)
            model = ctx.config.released(ctx.plan.stage.data, release.arrays)
        return model
