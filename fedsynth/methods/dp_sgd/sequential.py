"""DP-SGD fine-tuning: a private model goes from party to party, each trains it on its own records.

The baseline of the continual comparison: nothing but the model is handed on, so what the earlier
parties taught it is forgotten. Poisson batches, per-record gradients clipped flat, Gaussian noise
on the sum, a constant denominator, plain SGD. With one party it is the direct private training that
synthetic data are compared with. `topk` cuts gradients down to their largest coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedsynth.core.model import (
    Budget,
    Method,
    Outcome,
    Parties,
    PartyFacts,
    PartyPlan,
    Plan,
    Release,
    ReleasedModel,
    Request,
    Task,
    Work,
)
from fedsynth.methods.common.poisson_plan import sampled_share, step_event
from fedsynth.methods.dp_sgd.common import PrivateSGDConfig, first_model, private_gradient
from fedsynth.nn.classifiers.convnet import bare_convnet, filled_convnet
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.party_data import Private


@dataclass(frozen=True)
class DPSGDConfig(PrivateSGDConfig):
    """DP-SGD's settings."""


class DPSGD(Method):
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

    def plan(self, cfg: DPSGDConfig, task: Task, budget: Budget) -> Plan:
        model_bytes = 4 * sum(p.numel() for p in bare_convnet(cfg.width, task.data).parameters())
        parties = tuple(self._party_plan(cfg, facts, budget, model_bytes) for facts in task.parties)
        assumes = ("the number of records of each party",)
        return Plan(self.name, task, budget, parties, rounds=len(parties), assumes=assumes)

    def _party_plan(
        self, cfg: DPSGDConfig, facts: PartyFacts, budget: Budget, model_bytes: int
    ) -> PartyPlan:
        steps = cfg.steps(facts.records)
        return sampled_share(
            facts,
            budget,
            rate=cfg.sampling_rate(facts.records),
            steps=steps,
            bytes_up=model_bytes,
            bytes_down=model_bytes,
            work=(Work("gradient", cfg.width, cfg.batch, steps),),
        )

    def party(
        self, cfg: DPSGDConfig, plan: Plan, private: Private, request: Request, guard: Guard
    ) -> Release:
        data, share = plan.task.data, plan.of(private.facts.party)
        net = filled_convnet(cfg.width, data, request.arrays, guard.device)
        parameters: list[torch.Tensor] = list(net.parameters())
        expected = share.sampling_rate * share.records
        with guard.reserve(step_event(share), share.steps):
            for step in private.rounds(share.steps, {"model": net}):
                sums = private_gradient(cfg, guard, private, net, data=data, share=share, call=step)
                with torch.no_grad():
                    torch._foreach_add_(parameters, sums, alpha=-cfg.rate / expected)
        return guard.release(net.state_dict())

    def serve(self, cfg: DPSGDConfig, plan: Plan, parties: Parties) -> Outcome:
        model = first_model(cfg, plan.task.data, parties, self.name, "model")
        for position, party in enumerate(parties.who):
            request = Request("finetune", position, arrays=model.state)
            (release,) = parties.ask([party], request)
            model = ReleasedModel(release.arrays, cfg.width)
        return model
