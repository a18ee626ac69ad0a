"""GS-WGAN's settings, and what follows from them and from public facts alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.core.plan import Plan
from fedsynth.core.settings import setting
from fedsynth.core.types import Stage
from fedsynth.methods.gs_wgan.generator import draw_inputs
from fedsynth.methods.gs_wgan.schedule import (
    ORDERS,
    ROUND_ROBIN,
    ParticipationSchedule,
    SubsetTurn,
    make_schedule,
)


@dataclass(frozen=True)
class CriticConfig:
    """The settings of critics and generators; the defaults are the published ones."""

    batch: int = setting(32, "images a step, and upstream gradients a visit (B)", at_least=1)
    critic_steps: int = setting(5, "critic steps a generator step (n_dis)", at_least=1)
    warm: int = setting(2000, "warm-start generator steps of every subset (T_w)", at_least=0)
    rate: float = setting(1e-4, "Adam's learning rate, generators and critics", above=0)
    penalty: float = setting(10.0, "weight of the gradient penalty", at_least=0)
    drift: float = setting(0.001, "weight of the scores' squares", at_least=0)
    code: int = setting(10, "length of codes", at_least=1)
    generator: str = setting("dcgan", "architecture", choices=("dcgan", "resnet"))
    depth: int = setting(256, "channels of the generator, a multiple of 4", at_least=4)
    width: int = setting(64, "channels of a critic's first convolution", at_least=1)
    keep: bool = setting(
        True, "parties keep warm critics for later runs (private: a folder of mode 0700)"
    )


@dataclass(frozen=True)
class GSWGANConfig(CriticConfig):
    """GS-WGAN's settings; the defaults are the published ones."""

    subsets: int = setting(
        1000, "subsets over all parties of a stage (K), at least one each", at_least=1
    )
    steps: int = setting(20000, "generator steps, each a round (T)", at_least=1)
    per_round: int = setting(1, "subsets visited in a round", at_least=1)
    order: str = setting(ROUND_ROBIN, "who is visited when, in public", choices=ORDERS)
    clip: float = setting(1.0, "bound C on one image's gradient", above=0)
    noise: float | None = setting(
        None, "noise over one image's sensitivity 2C (sigma; published: 1.07); none: what the "
        "budget allows", above=0
    )  # fmt: skip
    generator_rate: float | None = setting(
        None, "Adam's rate of the released generator; none: as `rate`", above=0
    )
    average: float = setting(
        0.999, "decay of the moving average that is released", at_least=0, at_most=1
    )
    spc: int = setting(6000, "images a class drawn from the generator", at_least=1)

    def schedule(self, stage: Stage) -> ParticipationSchedule:
        """Who is visited when in this stage."""
        return make_schedule(
            stage,
            "gs_wgan",
            subsets=self.subsets,
            rounds=self.steps,
            per_round=self.per_round,
            order=self.order,
        )


def upstream_inputs(
    cfg: GSWGANConfig, plan: Plan, visit: SubsetTurn, number: int, seed: object
) -> tuple[Tensor, Tensor]:
    """Codes and labels of a visit's images, the same for party and curator; labels are uniform
    among the classes the party says it holds (a user says nothing: among all of the stage)."""
    classes = plan.stage.classes
    held = classes if plan.budget.unit == "user" else plan.info(visit.party).class_counts
    places = torch.tensor([place for place, name in enumerate(classes) if name in held])
    key = (seed, "gs_wgan", plan.stage.index, "upstream", number, visit.slot)
    return draw_inputs(cfg.batch, cfg.code, places, key)
