"""A method that does very little at a party, for benchmarks of the framework around it.

Loaded as a plug-in by the processes of a run. A party sends a noised sum of its images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fedsynth.core.messages import Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.plan import PartyPlan, Plan
from fedsynth.core.settings import setting
from fedsynth.methods.method import Method
from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier
from fedsynth.privacy.accounting.events import gaussian, repeated
from fedsynth.privacy.mechanisms.sums import RecordSum


@dataclass(frozen=True)
class RollCallConfig:
    """The number of rounds, and of parties per round."""

    rounds: int = setting(34, "rounds", at_least=1)
    per_round: int = setting(10, "parties asked per round", at_least=1)


class RollCall(Method[RollCallConfig]):
    """Parties take turns to send a noised sum of their images."""

    name = "roll_call"
    summary = "A noised sum of the images of some parties, round by round"

    def plan(self, cfg, stage, budget):
        """Every party is asked as often as its turn comes."""
        noise = poisson_gaussian_multiplier(
            1.0, math.ceil(cfg.rounds * cfg.per_round / len(stage.parties)),
            budget.epsilon, budget.delta, budget.accounting,
        )  # fmt: skip
        parties = []
        for position, info in enumerate(stage.parties):
            visits = len(range(position, cfg.rounds * cfg.per_round, len(stage.parties)))
            event = repeated(gaussian(noise), visits)
            parties.append(
                PartyPlan(
                    info.party, info.records, event, steps=max(1, visits),
                    noise_multiplier=noise, bytes_up=visits * 4 * math.prod(stage.data.shape),
                )
            )  # fmt: skip
        return Plan(self.name, stage, budget, tuple(parties), rounds=cfg.rounds)

    def party(self, ctx, request):
        """The noised sum of the images of one party."""
        mechanism = RecordSum(
            contribution=lambda images, _: images,
            width=math.prod(ctx.dataset.shape),
            clip=1.0,
            noise_multiplier=ctx.party_plan.noise_multiplier,
            sampling_rate=1.0,
        )
        (total,) = ctx.guard.apply(mechanism, ctx.data)
        return ctx.guard.release({"sum": total})

    def serve(self, ctx):
        """Ask some parties per round, and add up their sums."""
        cfg, stage, parties = ctx.config, ctx.plan.stage, ctx.parties
        total = torch.zeros(math.prod(stage.data.shape))
        for number in ctx.rounds(cfg.rounds, {"total": total}):
            first = number * cfg.per_round
            asked = [parties[(first + i) % len(parties)] for i in range(cfg.per_round)]
            for release in ctx.ask(asked, Request(round=number)):
                total += release.arrays["sum"]
        classes = torch.tensor(stage.classes)
        images = total.reshape(1, *stage.data.shape).repeat(len(classes), 1, 1, 1)
        return SyntheticSet(images, classes)
