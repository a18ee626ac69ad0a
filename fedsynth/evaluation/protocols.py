"""How a classifier is trained on a released set before it is tested: the published protocols.

Protocol P is PSG's (papers 003 and 000), protocol D is that of LDPDC and NDPDC (paper 002), and
protocol S trains the students of `sketch_teach`. Their accuracies must not be compared with one
another without saying so, hence every result carries the name. No protocol here looks at the test
set before the last step: the net of the last epoch of a fixed schedule is the net that is tested.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import torch

from fedsynth.core import TABLE, DataFacts
from fedsynth.errors import UserError, unknown
from fedsynth.models.zoo import CLASSIFIERS
from fedsynth.settings import setting

DTYPES = ("float32", "bfloat16")
MIN_STEPS = 50  # a cap on images never cuts a schedule below this many steps
FLIPLESS = ("mnist",)  # a mirrored digit is another sign


@dataclass(frozen=True)
class Schedule:
    """Steps of SGD and the step after which the learning rate drops, once."""

    steps: int
    drop_after: int
    epochs: float  # passes over the set that these steps make


@dataclass(frozen=True)
class Protocol:
    """One published way to train the classifier. `epochs` is the E of the papers, whose loops run
    E + 1 passes and lower the rate after pass number E // 2 + 1, counted from 0."""

    name: str
    summary: str
    augmentation: Literal["crop_scale_rotate", "dsa", "affine"]
    scaling: Literal["standardised", "symmetric"]
    epochs: int
    epochs_large: int
    large_from: int = 5000  # images from which a set is a "full" one, trained for epochs_large
    runs: int = 3
    batch: int = 256
    learning_rate: float = 0.01
    drop: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    one_cycle: bool = False  # AdamW whose rate rises and falls once, in place of SGD with a drop

    def optimiser(self, weights: Iterable[torch.Tensor], rate: float) -> torch.optim.Optimizer:
        """A fresh optimiser at this learning rate."""
        if self.one_cycle:
            return torch.optim.AdamW(weights, rate, weight_decay=self.weight_decay, fused=True)
        return torch.optim.SGD(
            weights, rate, momentum=self.momentum, weight_decay=self.weight_decay, fused=True
        )

    def schedule(self, images: int, epochs: int = 0, max_images: int = 0) -> Schedule:
        """The schedule for a set of this size; `epochs` replaces E, `max_images` caps the image
        passes (0: neither). A cap cuts the steps and moves the drop along in proportion."""
        last = epochs or (self.epochs_large if images >= self.large_from else self.epochs)
        a_pass = math.ceil(images / self.batch)
        steps, drop_after = (last + 1) * a_pass, (last // 2 + 2) * a_pass
        if max_images:
            capped = max(int(max_images / images * a_pass), MIN_STEPS)
            if capped < steps:
                steps, drop_after = capped, round(capped * drop_after / steps)
        return Schedule(steps, min(drop_after, steps), steps / a_pass)

    def scaled(self, pixels: torch.Tensor, facts: DataFacts) -> torch.Tensor:
        """Pixels (0 black, 1 white) in the scale this protocol trains in."""
        if self.scaling == "symmetric":
            return (pixels - 0.5) / 0.5
        mean = torch.tensor(facts.mean, device=pixels.device).view(1, -1, 1, 1)
        std = torch.tensor(facts.std, device=pixels.device).view(1, -1, 1, 1)
        return (pixels - mean) / std

    def strategy(self, facts: DataFacts) -> tuple[str, ...]:
        """The augmentations the protocol picks from for this data; empty means none."""
        if facts.kind == TABLE:
            return ()
        if self.augmentation == "affine":
            return ("affine",)
        if self.augmentation == "crop_scale_rotate":
            return () if facts.name == "cifar10" else ("crop", "scale", "rotate")
        plain = ("color", "crop", "cutout", "scale", "rotate")
        return plain if facts.name in FLIPLESS else (*plain, "flip")


PROTOCOLS = {
    "P": Protocol(
        "P",
        "PSG: standardised, {crop, scale, rotate} one per image, E=300 (40 on full sets), 3 nets",
        augmentation="crop_scale_rotate",
        scaling="standardised",
        epochs=300,
        epochs_large=40,
    ),
    "D": Protocol(
        "D",
        "DPDC: [-1, 1], DSA one operation per batch, E=1000",
        augmentation="dsa",
        scaling="symmetric",
        epochs=1000,
        epochs_large=1000,
        runs=1,
    ),
    "S": Protocol(
        "S",
        "student of sketch_teach: standardised, mild affine, AdamW in one cycle, E=7 on full sets",
        augmentation="affine",
        scaling="standardised",
        epochs=300,
        epochs_large=7,
        runs=2,
        batch=128,
        learning_rate=3e-3,
        weight_decay=0.01,
        one_cycle=True,
    ),
}


def protocol(name: str) -> Protocol:
    """The protocol of this name."""
    if name not in PROTOCOLS:
        raise unknown("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]


@dataclass(frozen=True)
class EvalSetting:
    """Which protocol to follow, and where a cheaper run departs from it. The defaults are the
    protocol itself; 0 means "what the protocol says"."""

    protocol: str = setting("P", f"how classifiers are trained: {', '.join(PROTOCOLS)}")
    classifier: str = setting("convnet", f"what is trained: {', '.join(CLASSIFIERS)}")
    width: int = setting(128, "width of the ConvNet")
    nets: int = setting(0, "fresh nets a released set; 0: the protocol's")
    epochs: int = setting(0, "E, of which the loop makes E + 1; 0: the protocol's")
    max_images: int = setting(0, "cap on the image passes of one training; 0: none")
    batch: int = setting(0, "smaller batches make more steps of as many images; 0: the protocol's")
    dtype: str = setting(
        "float32",
        "type of matrix products and convolutions in training (bfloat16: as under autocast)",
        choices=DTYPES,
    )

    def __post_init__(self) -> None:
        protocol(self.protocol)
        if self.classifier not in CLASSIFIERS:
            raise unknown("classifier", self.classifier, CLASSIFIERS)
        if self.dtype not in DTYPES:
            raise unknown("dtype", self.dtype, DTYPES)
        for name, least in (
            ("width", 1),
            ("nets", 0),
            ("epochs", 0),
            ("max_images", 0),
            ("batch", 0),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UserError(f"evaluation {name}={value!r} must be a whole number >= {least}.")

    @property
    def rules(self) -> Protocol:
        """The protocol, with the batch of this setting."""
        rules = protocol(self.protocol)
        return replace(rules, batch=self.batch) if self.batch else rules

    @property
    def runs(self) -> int:
        """How many fresh nets judge one released set."""
        return self.nets or protocol(self.protocol).runs

    def schedule(self, images: int) -> Schedule:
        """The schedule this setting gives a set of this many images."""
        return self.rules.schedule(images, self.epochs, self.max_images)

    def describe(self, images: int) -> str:
        """What really runs on a set of this size, in one line to print beside the numbers."""
        net = self.classifier + (f"-{self.width}" if self.classifier == "convnet" else "")
        plan = self.schedule(images)
        rounded = "" if self.dtype == "float32" else f" in {self.dtype}"
        return (
            f"protocol {self.protocol}, {net} x {self.runs}{rounded}, {plan.epochs:.4g} epochs "
            f"({plan.steps} steps of at most {self.rules.batch}) on {images} images, last epoch, "
            "one head over the classes seen"
        )
