"""Settings of GS-WGAN, and what follows from them and from public facts alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.core.enums import Unit
from fedsynth.core.plan import Plan
from fedsynth.core.settings import setting
from fedsynth.core.types import Stage
from fedsynth.methods.common.intermediate import intermediate_setting, kept_after
from fedsynth.methods.gs_wgan.generator import Architecture, draw_inputs
from fedsynth.methods.gs_wgan.schedule import (
    ParticipationSchedule,
    SubsetTurn,
    TurnOrder,
    make_schedule,
)
from fedsynth.nn.compute_dtype import ComputeDtype
from fedsynth.privacy.clipping import LEAST_CLIP, MOST_CLIP


@dataclass(frozen=True)
class WassersteinConfig:
    """Settings of critics and generators; the defaults are the published ones."""

    batch: int = setting(32, "images per step, and upstream gradients per turn (B)", at_least=1)
    critic_steps: int = setting(5, "critic steps per generator step (n_dis)", at_least=1)
    learning_rate: float = setting(
        1e-4, "Adam's learning rate of generators and critics", above=0, formerly="rate"
    )
    penalty: float = setting(10.0, "weight of the gradient penalty", at_least=0)
    drift: float = setting(0.001, "weight of the squared scores", at_least=0)
    latent: int = setting(10, "length of a latent vector", at_least=1, formerly="code")
    generator: Architecture = setting(Architecture.RESNET, "architecture")
    depth: int = setting(256, "channels of the generator, a multiple of 4", at_least=4)
    width: int = setting(64, "channels of a critic's first convolution", at_least=1)
    dtype: ComputeDtype = setting(
        ComputeDtype.FLOAT32,
        "arithmetic of critics and generators (bfloat16: as under autocast; auto: bfloat16 if the "
        "machine has instructions for it)",
    )


@dataclass(frozen=True)
class CriticConfig(WassersteinConfig):
    """Settings of critics that are warm-started; the defaults are the published ones."""

    warm_steps: int = setting(
        2000, "warm-start generator steps per subset (T_w)", at_least=0, formerly="warm"
    )
    keep: bool = setting(
        True, "parties keep warm critics for later runs (private: a folder of mode 0700)"
    )


@dataclass(frozen=True)
class GSWGANConfig(CriticConfig):
    """Settings of GS-WGAN; the defaults are the published ones."""

    subsets: int = setting(
        1000, "subsets over all parties of a stage (K), at least one per party", at_least=1
    )
    steps: int = setting(20000, "generator steps, one per round (T)", at_least=1)
    per_round: int = setting(1, "subsets that have a turn per round", at_least=1)
    order: TurnOrder = setting(TurnOrder.ROUND_ROBIN, "public order of the turns")
    clip: float = setting(
        1.0, "bound C on the gradient at one image", at_least=LEAST_CLIP, at_most=MOST_CLIP
    )
    noise: float | None = setting(
        None, "noise over the sensitivity 2C of one image (sigma; published: 1.07); default: what "
        "the budget allows", above=0
    )  # fmt: skip
    generator_learning_rate: float | None = setting(
        None, "Adam's learning rate of the released generator; none: as `learning_rate`", above=0,
        formerly="generator_rate",
    )  # fmt: skip
    ema_decay: float = setting(
        0.999, "decay of the moving average of generators that is released", at_least=0, at_most=1,
        formerly="average",
    )  # fmt: skip
    spc: int = setting(
        6000, "images per class drawn from the generator", at_least=1, at_most=1_000_000
    )

    intermediate: int = intermediate_setting("steps")

    @property
    def kept_steps(self) -> tuple[int, ...]:
        """The numbers of steps after which an intermediate set is kept."""
        return kept_after(self.steps, self.intermediate)

    def schedule(self, stage: Stage) -> ParticipationSchedule:
        """The turns of all subsets in this stage."""
        return make_schedule(
            stage,
            "gs_wgan",
            subsets=self.subsets,
            rounds=self.steps,
            per_round=self.per_round,
            order=self.order,
        )


def images_key(turn: SubsetTurn) -> str:
    """The name of a turn's generated images in a request."""
    return f"images-{turn.slot}"


def upstream_inputs(
    cfg: GSWGANConfig, plan: Plan, turn: SubsetTurn, number: int, seed: object
) -> tuple[Tensor, Tensor]:
    """Latents and class indices of a turn's images, the same at the party and at the server.

    Classes are uniform among those that the party states to hold. Under unit "user" parties state
    none, and classes are uniform among all of the stage."""
    classes = plan.stage.classes
    held = classes if plan.budget.unit == Unit.USER else plan.info(turn.party).class_counts
    indices = torch.tensor([index for index, label in enumerate(classes) if label in held])
    key = (seed, "gs_wgan", plan.stage.index, "upstream", number, turn.slot)
    return draw_inputs(cfg.batch, cfg.latent, indices, key)
