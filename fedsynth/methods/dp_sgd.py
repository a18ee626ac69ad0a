"""DP-SGD fine-tuning: a private model goes from party to party, each trains it on its own records.

The baseline of the continual comparison: nothing but the model is handed on, so what the earlier
parties taught it is forgotten. Poisson batches, per-record gradients clipped flat, Gaussian noise
on the sum, a constant denominator, plain SGD.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedsynth.core import (
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
from fedsynth.data.scaling import Scale
from fedsynth.methods._sampled import sampled_share, step_event
from fedsynth.models.classifiers import bare_convnet, filled_convnet, make_convnet
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.private import Private
from fedsynth.settings import setting


@dataclass(frozen=True)
class DPSGDConfig:
    """DP-SGD's settings; the defaults are those of the PSG paper's baseline."""

    epochs: int = setting(10, "passes over each party's records", at_least=1)
    batch: int = setting(256, "expected size of a batch", at_least=1)
    clip: float = setting(0.1, "bound C on a record's gradient", above=0)
    rate: float = setting(0.01, "learning rate", above=0)
    width: int = setting(128, "width of the ConvNet", at_least=1)
    dtype: str = setting("float32", "arithmetic of the gradient", choices=("float32", "bfloat16"))

    def sampling_rate(self, facts: PartyFacts) -> float:
        """Probability that a record enters a batch."""
        return min(1.0, self.batch / facts.records)

    def steps(self, facts: PartyFacts) -> int:
        """Steps at one party: whole batches of an epoch times epochs."""
        return self.epochs * max(1, int(1 / self.sampling_rate(facts)))


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
        steps = cfg.steps(facts)
        return sampled_share(
            facts,
            budget,
            rate=cfg.sampling_rate(facts),
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
        scale = Scale.standard(data)
        parameters: list[torch.Tensor] = list(net.parameters())
        expected = share.sampling_rate * share.records
        with guard.reserve(step_event(share), share.steps):
            for step in private.rounds(share.steps, {"model": net}):
                sums = guard.noisy_gradient(
                    private,
                    net,
                    scale,
                    clip=cfg.clip,
                    noise_multiplier=share.noise_multiplier,
                    sampling_rate=share.sampling_rate,
                    call=step,
                    dtype=cfg.dtype,
                )
                with torch.no_grad():
                    torch._foreach_add_(parameters, sums, alpha=-cfg.rate / expected)
        return guard.release(net.state_dict())

    def serve(self, cfg: DPSGDConfig, plan: Plan, parties: Parties) -> Outcome:
        if parties.inherited and isinstance(parties.inherited[-1], ReleasedModel):
            state = parties.inherited[-1].state
        else:
            data = plan.task.data
            net = make_convnet(cfg.width, data, data.classes, parties.seed, self.name, "model")
            state = net.state_dict()
        for position, party in enumerate(parties.who):
            (release,) = parties.ask([party], Request("finetune", position, arrays=state))
            state = release.arrays
        return ReleasedModel(state, cfg.width)
