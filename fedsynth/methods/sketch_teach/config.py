"""The settings of sketch_teach, and the numbers of a release that follow from data and budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fedsynth.core.errors import UserError
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, DatasetInfo, Stage
from fedsynth.methods.dpdc.condensation import Condensation, CondensationConfig
from fedsynth.methods.sketch_teach.linear_teacher import multipliers
from fedsynth.methods.sketch_teach.representation import Sketch
from fedsynth.nn.transforms.image_priors import PRIORS, ImagePrior, find_prior
from fedsynth.privacy.accounting.calibration import gaussian_mu
from fedsynth.privacy.clipping import LEAST_CLIP, MOST_CLIP

IMAGE_SHAPE = (1, 28, 28)
DIGITS, CLOTHES = "digits", "clothes"
KINDS = {"mnist": DIGITS, "shapes": DIGITS, "fashion_mnist": CLOTHES}
DEFAULT_PRIOR = {DIGITS: "pen", CLOTHES: "textures"}
SHARES = (0.15, 0.25, 0.6)  # of the sketch's mu^2, per query
SHARES_WITH_CELLS = (0.1, 0.1, 0.2, 0.6)
AUTO = "auto"
TUNED_DEFAULTS: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]] = {
    DIGITS: (
        {"frequencies": 20, "cells": 1, "share": 0.4, "steps": 60, "momentum": 0.8}
        | {"moved": 1.0, "elastic": 0.6, "enriched": 1.0},
        {"frequencies": 20, "cells": 8, "share": 0.4, "steps": 100, "momentum": 0.9}
        | {"moved": 1.0, "elastic": 0.6, "enriched": 1.0},
    ),
    CLOTHES: (
        {"frequencies": 24, "cells": 1, "share": 0.7, "steps": 60, "momentum": 0.8}
        | {"moved": 0.0, "elastic": 0.3, "enriched": 0.5},
        {"frequencies": 24, "cells": 8, "share": 0.6, "steps": 100, "momentum": 0.9}
        | {"moved": 0.0, "elastic": 0.3, "enriched": 0.3},
    ),
}
"""The defaults that were tuned at epsilon 1 and at epsilon 10."""
REFERENCE_RECORDS_PER_CLASS = 6000  # for which `TUNED_DEFAULTS` were tuned
LOW_EPSILON_SLOPES = {"frequencies": (4, 5), "steps": (40, 20)}
"""Decrease per decade of epsilon below 1, and the minimum."""
TEMPERATURE = 1.15
TEMPERATURE_OF_SPLIT_DIGITS = 1.5  # if the parties hold different digits
DEFAULT_SPC, DEFAULT_OPTIMISED_SPC = 8000, 50
SINGLE_CLASS_DEFAULTS = {"share": 0.99, "steps": 2}
"""With a single class and no earlier one there is nothing for a teacher to learn."""


def unfit(data: DatasetInfo) -> str:
    """The reason why such data cannot be released; empty if they can."""
    if data.shape == IMAGE_SHAPE:
        return ""
    shape = "x".join(map(str, data.shape))
    return (
        f"it needs grey images of 28x28 pixels, and these have {shape} (channels, height, "
        f"width); data that fit: {', '.join(KINDS)}, and your own arrays of that shape"
    )


class LabelKind(StrEnum):
    """The labels of a released set: classes, or probabilities."""

    HARD = "hard"
    SOFT = "soft"


class Pose(StrEnum):
    """The part of a shape's position that is removed; auto: by kind of data."""

    AUTO = "auto"
    NONE = "none"
    SLANT = "slant"


class Block(StrEnum):
    """The low-frequency coefficients that are kept: below the diagonal of a square, or all."""

    CORNER = "corner"
    SQUARE = "square"


DEFAULT_POSE = {DIGITS: Pose.SLANT, CLOTHES: Pose.NONE}


@dataclass(frozen=True)
class SketchTeachConfig:
    """Settings of sketch_teach. None: chosen by data set and budget (`TUNED_DEFAULTS`)."""

    spc: int | None = setting(
        None,
        f"synthetic images per class; none: {DEFAULT_SPC}, or {DEFAULT_OPTIMISED_SPC} if optimised",
        at_least=1,
    )
    optimise: Condensation = setting(
        Condensation.NONE, "optimise few images to match a large set, and by what they match"
    )
    optimise_steps: int = setting(200, "steps of that optimisation", at_least=1)
    optimise_from: int = setting(1000, "images per class of the large set", at_least=1)
    labels: LabelKind = setting(LabelKind.HARD, "labels of the set")
    prior: str = setting(AUTO, "public prior on images", choices=(AUTO, *PRIORS))
    pose: Pose = setting(Pose.AUTO, "what is removed from a shape before it is represented")
    scattering: bool = setting(True, "scattering features in addition to those of the pool-net")
    frequencies: int | None = setting(
        None, "side k of the low-frequency block; none: by budget", at_least=2, at_most=28
    )
    block: Block = setting(Block.CORNER, "which of its k x k coefficients: half of them, or all")
    cells: int | None = setting(
        None, "Gaussians per class; none: by budget", at_least=1, at_most=64
    )
    share: float | None = setting(
        None, "share of mu^2 for the sketch; none: by budget", at_least=0.01, at_most=0.99
    )
    steps: int | None = setting(None, "steps T of the teacher; none: by budget", at_least=2)
    learning_rate: float = setting(400.0, "learning rate of the teacher", above=0, formerly="rate")
    momentum: float | None = setting(
        None, "momentum of the teacher; none: by budget", at_least=0, at_most=0.99
    )
    clip: float = setting(
        0.1, "bound C on a record's gradient", at_least=LEAST_CLIP, at_most=MOST_CLIP
    )
    pool: int = setting(2000, "images per class to train the pool-net on", at_least=10)
    pool_steps: int = setting(700, "training steps of the pool-net", at_least=1)
    width: int = setting(32, "width of the pool-net", at_least=4)
    temperature: float | None = setting(
        None,
        f"spread of the released samples; none: {TEMPERATURE}, or {TEMPERATURE_OF_SPLIT_DIGITS} "
        "for digits if other parties hold other classes",
        above=0,
    )
    moved: float | None = setting(
        None,
        "share of images that are rotated and shifted; none: by kind of data",
        at_least=0,
        at_most=1,
    )
    elastic: float | None = setting(
        None, "elastic deformation in pixels; none: by budget", at_least=0
    )
    enriched: float | None = setting(
        None, "share of images that the prior changes; none: by budget", at_least=0, at_most=1
    )
    negatives: int = setting(
        1000, "earlier images per class that the next party's teacher sees; 0: none", at_least=0
    )

    @property
    def matched_to(self) -> int | None:
        """Images per class of the large set that a small one is matched to; None without one."""
        return None if self.optimise == Condensation.NONE else self.optimise_from

    def condensation(self, spc: int) -> CondensationConfig:
        """The optimisation of a small set of `spc` images per class."""
        return CondensationConfig(self.optimise, spc, self.optimise_steps, self.width)


@dataclass(frozen=True)
class ReleaseParameters:
    """All numbers of one release."""

    prior: ImagePrior
    sketch: Sketch
    cells: int
    share: float
    steps: int
    momentum: float
    spc: int
    temperature: float
    moved: float
    elastic: float
    enriched: float
    sketch_multipliers: tuple[float, ...]
    teacher_multiplier: float

    @staticmethod
    def derive(
        cfg: SketchTeachConfig, stage: Stage, budget: Budget, records: int, noise_terms: int = 1
    ) -> ReleaseParameters:
        """The numbers for sums over `records` records under this budget.

        Between the two budgets of `TUNED_DEFAULTS` they follow the logarithm of epsilon. Fewer
        records per class count like a smaller epsilon, as the relative noise is the same.

        Args:
            cfg: The settings.
            stage: The stage, of which the data and the classes count.
            budget: The budget of each party.
            records: The public number of records in a sum.
            noise_terms: The number of times that a sum contains the noise of one party.

        Raises:
            UserError: sketch_teach cannot release such data.
        """
        if why := unfit(stage.data):
            raise UserError(f"sketch_teach cannot release data={stage.data.name}: {why}.")
        kind = KINDS.get(stage.data.name)
        reference = (
            REFERENCE_RECORDS_PER_CLASS * max(1, len(stage.classes)) * math.sqrt(noise_terms)
        )
        effective_epsilon = budget.epsilon * records / reference
        decade = math.log10(max(effective_epsilon, 1e-6))
        low, high = TUNED_DEFAULTS[kind or CLOTHES]
        chosen = {name: _interpolate(name, low[name], high[name], decade) for name in low}
        split_digits = kind == DIGITS and len(stage.classes) < stage.data.classes
        chosen["temperature"] = TEMPERATURE_OF_SPLIT_DIGITS if split_digits else TEMPERATURE
        chosen |= SINGLE_CLASS_DEFAULTS if _single_class(cfg, stage) else {}
        chosen |= {k: v for k in chosen if (v := getattr(cfg, k)) is not None}
        default_prior = DEFAULT_PRIOR[kind] if kind else "none"
        default_pose = DEFAULT_POSE[kind] if kind else "none"
        pose = default_pose if cfg.pose == Pose.AUTO else cfg.pose
        mu = gaussian_mu(budget.epsilon, budget.delta, budget.accounting, budget.relation)
        steps = round(chosen["steps"])
        sketch, teacher = multipliers(mu, chosen["share"], steps)
        cells = round(chosen["cells"])
        shares = SHARES if cells == 1 else SHARES_WITH_CELLS
        return ReleaseParameters(
            prior=find_prior(default_prior if cfg.prior == AUTO else cfg.prior),
            sketch=Sketch(
                round(chosen["frequencies"]), pose == Pose.SLANT, cfg.block == Block.CORNER
            ),
            cells=cells,
            share=chosen["share"],
            steps=steps,
            momentum=chosen["momentum"],
            spc=(cfg.spc or DEFAULT_SPC)
            if cfg.optimise == Condensation.NONE
            else _optimised_spc(cfg),
            temperature=chosen["temperature"],
            moved=chosen["moved"],
            elastic=chosen["elastic"],
            enriched=chosen["enriched"],
            sketch_multipliers=tuple(sketch / math.sqrt(share) for share in shares),
            teacher_multiplier=teacher,
        )


def _single_class(cfg: SketchTeachConfig, stage: Stage) -> bool:
    """True if the teacher would see a single class."""
    earlier = set(stage.seen) - set(stage.classes) if cfg.negatives else set()
    return len(stage.classes) == 1 and not earlier


def _optimised_spc(cfg: SketchTeachConfig) -> int:
    """Images per class of an optimised set: at most as many as the set it is matched to has."""
    default = min(DEFAULT_OPTIMISED_SPC, cfg.optimise_from)
    if cfg.spc is not None and cfg.spc > cfg.optimise_from:
        raise UserError(
            f"spc={cfg.spc} with optimise={cfg.optimise}: the optimised set has at most as many "
            f"images per class as the set it is matched to, optimise_from={cfg.optimise_from}. "
            f"Choose a smaller spc (usual: {default}) or a larger optimise_from."
        )
    return cfg.spc or default


def _interpolate(name: str, low: float, high: float, decade: float) -> float:
    """The value at log10(epsilon) = decade, from those at 0 and 1."""
    if name in LOW_EPSILON_SLOPES and decade < 0:
        slope, minimum = LOW_EPSILON_SLOPES[name]
        return max(low + slope * decade, minimum)
    return low + (high - low) * min(max(decade, 0.0), 1.0)
