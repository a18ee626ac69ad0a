"""DP-SGD fine-tuning: a private model goes from party to party, each trains it on its own records.

The baseline of the continual comparison: nothing but the model is handed on, so what the earlier
parties taught it is forgotten. Poisson batches, per-record gradients clipped flat, Gaussian noise
on the sum, a constant denominator, plain SGD. With one party it is the direct private training that
synthetic data are compared with. `topk` cuts gradients down to their largest coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome, ReleasedModel
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.types import Budget, ComputeCost, PartyInfo, Stage
from fedsynth.methods.common.poisson_plan import sampled_party_plan, step_event
from fedsynth.methods.dp_sgd.common import PrivateSGDConfig, first_model, private_gradient
from fedsynth.methods.method import Method, PartyContext, ServerContext
from fedsynth.nn.classifiers.convnet import convnet_from_state, empty_convnet


@dataclass(frozen=True)
class DPSGDConfig(PrivateSGDConfig):
    """DP-SGD's settings."""


class DPSGD(Method[DPSGDConfig]):
    """A relay: party after party gets the model, trains it privately and hands it on."""

    name = "dp_sgd"
    summary = "A model trained with DP-SGD by one party after another, without replay"
    source = "baseline of Chen et al. 2022 (class-incremental fine-tuning)"
    Config = DPSGDConfig
    presets = {
        "smoke": {"width": 32, "epochs": 1, "rate": 1.0},
        "laptop": {"width": 32, "epochs": 1, "rate": 1.0},
        "paper": {},
    }

    def inherits(self, cfg: DPSGDConfig) -> bool:
        return True

    def plan(self, cfg: DPSGDConfig, stage: Stage, budget: Budget) -> Plan:
        model_bytes = 4 * sum(p.numel() for p in empty_convnet(cfg.width, stage.data).parameters())
        parties = tuple(self._party_plan(cfg, info, budget, model_bytes) for info in stage.parties)
        assumes = ("the number of records of each party",)
        return Plan(self.name, stage, budget, parties, rounds=len(parties), assumes=assumes)

    def _party_plan(
        self, cfg: DPSGDConfig, info: PartyInfo, budget: Budget, model_bytes: int
    ) -> PartyPlan:
        steps = cfg.steps(info.records)
        return sampled_party_plan(
            info,
            budget,
            sampling_rate=cfg.sampling_rate(info.records),
            steps=steps,
            bytes_up=model_bytes,
            bytes_down=model_bytes,
            cost=(ComputeCost("gradient", cfg.width, cfg.batch, steps),),
        )

    def party(self, ctx: PartyContext[DPSGDConfig], request: Request) -> Release:
        cfg, plan, private, guard = ctx.config, ctx.plan, ctx.data, ctx.guard
        data, share = plan.stage.data, plan.of(private.info.party)
        net = convnet_from_state(cfg.width, data, request.arrays, guard.device)
        parameters: list[torch.Tensor] = list(net.parameters())
        expected = share.sampling_rate * share.records
        with guard.reserve(step_event(share), share.steps):
            for step in private.rounds(share.steps, {"model": net}):
                sums = private_gradient(cfg, guard, private, net, data=data, share=share, call=step)
                with torch.no_grad():
                    torch._foreach_add_(parameters, sums, alpha=-cfg.rate / expected)
        return guard.release(net.state_dict())

    def serve(self, ctx: ServerContext[DPSGDConfig]) -> Outcome:
        cfg, plan = ctx.config, ctx.plan
        model = first_model(cfg, plan.stage.data, ctx, self.name, "model")
        for position, party in enumerate(ctx.parties):
            request = Request("finetune", position, arrays=model.state)
            (release,) = ctx.ask([party], request)
            model = ReleasedModel(release.arrays, cfg.width)
        return model
