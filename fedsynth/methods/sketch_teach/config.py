"""The settings of sketch_teach, and how those left open follow from the data and the budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedsynth.core.errors import UserError
from fedsynth.core.settings import setting
from fedsynth.core.types import Budget, DatasetInfo, Stage
from fedsynth.methods.dpdc.condensation import NONE, WAYS, CondensationConfig
from fedsynth.methods.sketch_teach.linear_teacher import multipliers
from fedsynth.methods.sketch_teach.representation import Sketch
from fedsynth.nn.transforms.image_priors import PRIORS, ImagePrior, find_prior
from fedsynth.privacy.accounting.calibration import gaussian_mu

SHAPE = (1, 28, 28)
DIGITS, CLOTHES = "digits", "clothes"
KINDS = {"mnist": DIGITS, "shapes": DIGITS, "fashion_mnist": CLOTHES}
HAND_WRITTEN = {DIGITS: "pen", CLOTHES: "textures"}
POSE = {DIGITS: "slant", CLOTHES: "none"}
BLOCKS = ("corner", "square")
PARTS = (0.15, 0.25, 0.6)  # of the sketch's share of mu^2, by question; and with cells:
PARTS_WITH_CELLS = (0.1, 0.1, 0.2, 0.6)
AUTO = "auto"
POSES = (AUTO, "none", "slant")
CHOSEN: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]] = {  # at epsilon 1 and at 10
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
TEMPERATURE = 1.15
DIGITS_APART = 1.5  # temperature where others hold the other digits: no teacher sees images of all
USUAL = 6000  # records a class for which the two columns were chosen
LARGE, SMALL = 8000, 50  # images a class, drawn or optimised, where their number is left open
LONE = {"share": 0.99, "steps": 2}
"""Where there is one class and no other to tell it from, a teacher has nothing to learn."""
FALLING = {"frequencies": (4, 5), "steps": (40, 20)}
"""What is less below epsilon 1: by how much at a tenth of the budget, and the least there is."""


def unfit(data: DatasetInfo) -> str:
    """Why such data cannot be sketched; empty where they can."""
    if data.shape == SHAPE:
        return ""
    shape = "x".join(map(str, data.shape))
    return (
        f"it sketches grey images of 28x28 pixels, and these have {shape} (channels, height, "
        f"width); data that fit: {', '.join(KINDS)}, and your own arrays of that shape"
    )


@dataclass(frozen=True)
class SketchTeachConfig:
    """Settings of sketch_teach; none: chosen by data set and budget (`CHOSEN`)."""

    spc: int | None = setting(
        None, f"synthetic images a class; none: {LARGE}, or {SMALL} if optimised", at_least=1
    )
    optimise: str = setting(
        NONE, "whether few images are matched to a large set, and in what", choices=WAYS
    )
    optimise_steps: int = setting(200, "steps of that matching", at_least=1)
    optimise_from: int = setting(1000, "images a class of the large set", at_least=1)
    labels: str = setting("hard", "labels of the set", choices=("hard", "soft"))
    prior: str = setting(AUTO, "what is assumed of pictures", choices=(AUTO, *PRIORS))
    pose: str = setting(AUTO, "what is taken out of a shape first", choices=POSES)
    scattering: bool = setting(True, "scattering features beside those of the pool-net")
    frequencies: int | None = setting(
        None, "side k of the low-frequency block; none: by budget", at_least=2, at_most=28
    )
    block: str = setting(
        "corner", "which of its k x k coefficients: half of them, or all", choices=BLOCKS
    )
    cells: int | None = setting(None, "Gaussians a class; none: by budget", at_least=1, at_most=64)
    share: float | None = setting(
        None, "share f of mu^2 for the sketch; none: by budget", at_least=0.01, at_most=0.99
    )
    steps: int | None = setting(None, "teacher steps T; none: by budget", at_least=2)
    rate: float = setting(400.0, "learning rate of the teacher", above=0)
    momentum: float | None = setting(
        None, "momentum of the teacher; none: by budget", at_least=0, at_most=0.99
    )
    clip: float = setting(0.1, "bound C on a record's gradient", above=0)
    pool: int = setting(2000, "images a class to train the pool-net on", at_least=10)
    pool_steps: int = setting(700, "steps of the pool-net's training", at_least=1)
    width: int = setting(32, "width of the pool-net", at_least=4)
    temperature: float | None = setting(
        None,
        f"spread of the released set's samples; none: {TEMPERATURE}, or {DIGITS_APART} for digits "
        "where other parties hold other classes",
        above=0,
    )
    moved: float | None = setting(
        None, "share of images turned and moved; none: by kind of data", at_least=0, at_most=1
    )
    elastic: float | None = setting(None, "bending in pixels; none: by budget", at_least=0)
    enriched: float | None = setting(
        None, "share of images the prior works on; none: by budget", at_least=0, at_most=1
    )
    negatives: int = setting(
        1000, "earlier images a class shown to the next party's teacher; 0: none", at_least=0
    )

    @property
    def drawn(self) -> int | None:
        """Images a class of the large set, where a small one is made of it."""
        return None if self.optimise == NONE else self.optimise_from

    def condensation(self, spc: int) -> CondensationConfig:
        """How a small set of so many images a class is made."""
        return CondensationConfig(self.optimise, spc, self.optimise_steps, self.width)


@dataclass(frozen=True)
class Recipe:
    """Every number of one release."""

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
    def of(
        cfg: SketchTeachConfig, stage: Stage, budget: Budget, records: int, noises: int = 1
    ) -> Recipe:
        """What a sum over `records` records allows under this budget, when it carries the noise
        `noises` times.

        Between the two budgets that settings were chosen at, they follow the logarithm of epsilon;
        a sum over fewer records a class drowns in noise as under a smaller epsilon."""
        if why := unfit(stage.data):
            raise UserError(f"sketch_teach cannot release data={stage.data.name}: {why}.")
        kind = KINDS.get(stage.data.name)
        usual = USUAL * max(1, len(stage.classes)) * math.sqrt(noises)
        strength = budget.epsilon * records / usual
        place = math.log10(max(strength, 1e-6))
        low, high = CHOSEN[kind or CLOTHES]
        chosen = {name: _between(name, low[name], high[name], place) for name in low}
        apart = kind == DIGITS and len(stage.classes) < stage.data.classes
        chosen["temperature"] = DIGITS_APART if apart else TEMPERATURE
        chosen |= LONE if _lone(cfg, stage) else {}
        chosen |= {k: v for k in chosen if (v := getattr(cfg, k)) is not None}
        automatic = HAND_WRITTEN[kind] if kind else "none"
        usual_pose = POSE[kind] if kind else "none"
        pose = usual_pose if cfg.pose == AUTO else cfg.pose
        mu = gaussian_mu(budget.epsilon, budget.delta, budget.accounting, budget.relation)
        steps = round(chosen["steps"])
        sketch, teacher = multipliers(mu, chosen["share"], steps)
        cells = round(chosen["cells"])
        parts = PARTS if cells == 1 else PARTS_WITH_CELLS
        return Recipe(
            find_prior(automatic if cfg.prior == AUTO else cfg.prior),
            Sketch(round(chosen["frequencies"]), pose == "slant", cfg.block == "corner"),
            cells,
            chosen["share"],
            steps,
            chosen["momentum"],
            (cfg.spc or LARGE) if cfg.optimise == NONE else _few(cfg),
            chosen["temperature"],
            chosen["moved"],
            chosen["elastic"],
            chosen["enriched"],
            tuple(sketch / math.sqrt(part) for part in parts),
            teacher,
        )


def _lone(cfg: SketchTeachConfig, stage: Stage) -> bool:
    """Whether a teacher would know one class alone."""
    others = set(stage.seen) - set(stage.classes) if cfg.negatives else set()
    return len(stage.classes) == 1 and not others


def _few(cfg: SketchTeachConfig) -> int:
    """Images a class of an optimised set: at most as many as the set it is matched to has."""
    usual = min(SMALL, cfg.optimise_from)
    if cfg.spc is not None and cfg.spc > cfg.optimise_from:
        raise UserError(
            f"spc={cfg.spc} with optimise={cfg.optimise}: the optimised set has at most as many "
            f"images a class as the set it is matched to, optimise_from={cfg.optimise_from}. Give "
            f"a smaller spc (usual: {usual}) or a larger optimise_from."
        )
    return cfg.spc or usual


def _between(name: str, low: float, high: float, place: float) -> float:
    """The value at log10(epsilon) = place, from those at 0 and 1."""
    if name in FALLING and place < 0:
        fall, least = FALLING[name]
        return max(low + fall * place, least)
    return low + (high - low) * min(max(place, 0.0), 1.0)
