"""Joint DP-SGD: the curator owns one model, and every step goes by the gradients of all parties.

DP-FedSGD. In each round a party returns the clipped gradient sum of its own Poisson sample, and the
curator takes a plain SGD step with the sum over parties, divided by the public expected size of the
batch over all of them. With the noise added once (`at=aggregate` or `distributed`) this is DP-SGD
on the pooled records, step by step; with `at=party` the noise is sqrt(K) times as large. See
`methods._joint` for whom each way trusts.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedsynth.core.model import (
    Budget,
    Method,
    Outcome,
    Parties,
    Plan,
    Release,
    ReleasedModel,
    Request,
    Task,
    Work,
)
from fedsynth.methods.common.noise_placement import JointConfig, party_sum, placed
from fedsynth.methods.common.poisson_plan import sampled_share
from fedsynth.methods.dp_sgd.common import PrivateSGDConfig, first_model, private_gradient
from fedsynth.nn.classifiers.convnet import bare_convnet, filled_convnet
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.party_data import Private


@dataclass(frozen=True)
class DPSGDJointConfig(PrivateSGDConfig, JointConfig):
    """DP-SGD's settings, whose batch is that of all parties together, and where the noise is
    added."""


class DPSGDJoint(Method):
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

    def plan(self, cfg: DPSGDJointConfig, task: Task, budget: Budget) -> Plan:
        records = sum(facts.records for facts in task.parties)
        rate, steps = cfg.sampling_rate(records), cfg.steps(records)
        floats = sum(p.numel() for p in bare_convnet(cfg.width, task.data).parameters())
        parties = tuple(
            placed(
                cfg,
                task,
                sampled_share(
                    facts,
                    budget,
                    rate=rate,
                    steps=steps,
                    bytes_up=4 * floats * steps,
                    bytes_down=4 * floats * steps,
                    work=(Work("gradient", cfg.width, round(rate * facts.records), steps),),
                ),
            )
            for facts in task.parties
        )
        assumes = ("the number of records of all parties together",)
        return Plan(self.name, task, budget, parties, rounds=steps, assumes=assumes)

    def party(
        self, cfg: DPSGDJointConfig, plan: Plan, private: Private, request: Request, guard: Guard
    ) -> Release:
        data, share = plan.task.data, plan.of(private.facts.party)
        net = filled_convnet(cfg.width, data, request.arrays, guard.device)
        sums = private_gradient(
            cfg, guard, private, net, data=data, share=share, call=request.round, at=cfg.at
        )
        names = [name for name, _ in net.named_parameters()]
        return guard.release(dict(zip(names, sums, strict=True)))

    def serve(self, cfg: DPSGDJointConfig, plan: Plan, parties: Parties) -> Outcome:
        start = first_model(cfg, plan.task.data, parties, self.name, "model")
        state = {name: value.detach().clone() for name, value in start.state.items()}
        share = plan.parties[0]
        expected = share.sampling_rate * sum(facts.records for facts in plan.task.parties)
        for step in parties.rounds(share.steps, dict(state)):
            total = party_sum(
                cfg,
                plan,
                parties,
                Request("gradient", step, arrays=state),
                shapes={name: value.shape for name, value in state.items()},
                bound=cfg.bound,
                noise_multiplier=share.noise_multiplier,
            )
            for name, value in total.arrays.items():
                state[name].sub_(value, alpha=cfg.rate / expected)
        return ReleasedModel(state, cfg.width)
