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

from fedsynth.core.model import Budget, Method, Outcome, Parties, Plan, Release, Request, Task, Work
from fedsynth.data.normalization import Scale
from fedsynth.methods.common.noise_placement import JointConfig, party_sum, placed
from fedsynth.methods.common.poisson_plan import sampled_share
from fedsynth.methods.psg.gradient_matching import MatchedImages, PrivateMatchingConfig, match_run
from fedsynth.methods.psg.psg import LAPTOP, earlier_images, other_classes
from fedsynth.nn.classifiers.convnet import bare_convnet, filled_convnet
from fedsynth.privacy.guard import Guard
from fedsynth.privacy.party_data import Private


@dataclass(frozen=True)
class PSGJointConfig(JointConfig, PrivateMatchingConfig):
    """PSG's settings, where the noise is added, and who may be missing."""


class PSGJoint(Method):
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

    def plan(self, cfg: PSGJointConfig, task: Task, budget: Budget) -> Plan:
        records = sum(facts.records for facts in task.parties)
        rate = min(1.0, cfg.batch / records)
        floats = sum(p.numel() for p in bare_convnet(cfg.width, task.data).parameters())
        parties = tuple(
            placed(
                cfg,
                task,
                sampled_share(
                    facts,
                    budget,
                    rate=rate,
                    steps=cfg.steps,
                    bytes_up=floats * 4 * cfg.steps,
                    bytes_down=floats * 4 * cfg.steps,
                    work=(Work("gradient", cfg.width, round(rate * facts.records), cfg.steps),),
                ),
            )
            for facts in task.parties
        )
        return Plan(
            self.name,
            task,
            budget,
            parties,
            rounds=cfg.steps,
            curator_work=cfg.curator_work(len(task.classes)),
            assumes=("the number of records of all parties together", "the classes of a stage"),
        )

    def party(
        self, cfg: PSGJointConfig, plan: Plan, private: Private, request: Request, guard: Guard
    ) -> Release:
        net = filled_convnet(cfg.width, plan.task.data, request.arrays, guard.device)
        share = plan.of(private.facts.party)
        sums = guard.noisy_gradient(
            private,
            net,
            Scale.standard(plan.task.data),
            clip=cfg.clip,
            noise_multiplier=share.noise_multiplier,
            sampling_rate=share.sampling_rate,
            call=request.round,
            dtype=cfg.dtype,
            at=cfg.at,
        )
        names = [name for name, _ in net.named_parameters()]
        return guard.release(dict(zip(names, sums, strict=True)))

    def serve(self, cfg: PSGJointConfig, plan: Plan, parties: Parties) -> Outcome:
        key = (parties.seed, self.name, plan.task.stage)
        matched = MatchedImages(cfg, plan.task.data, plan.task.classes, key, parties.device)

        def real_gradient(net: nn.Module, call: int) -> list[torch.Tensor]:
            state = {name: value.detach().cpu() for name, value in net.state_dict().items()}
            total = party_sum(
                cfg,
                plan,
                parties,
                Request("gradient", call, arrays=state),
                shapes={name: value.shape for name, value in net.named_parameters()},
                bound=cfg.clip,
                noise_multiplier=plan.parties[0].noise_multiplier,
            )
            return [value.to(parties.device) for value in total.arrays.values()]

        known = earlier_images(parties) if cfg.inner_set == "all" else {}
        others = other_classes(cfg, plan, matched, known)
        for run in parties.rounds(cfg.runs, matched.state):
            match_run(matched, run, real_gradient, others)
        return matched.result()
