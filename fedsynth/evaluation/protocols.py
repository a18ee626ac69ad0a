"""How a classifier is trained on a released set before it is tested: the published protocols.

Protocol P is PSG's (papers 003 and 000), protocol D is that of LDPDC and NDPDC (paper 002),
protocol G is the thirteen classifiers of GS-WGAN (paper 001), protocol L is that of DataLens and
G-PATE (paper 004), and protocol S trains the students of `sketch_teach`. Their accuracies must not
be compared with one another without saying so, hence every result carries the name. No protocol
here chooses anything by the test set: the net of the last epoch of a fixed schedule is the net that
counts. Where a paper reports its best epoch on the test set (L), that number is kept apart, as
`accuracy_optimistic_max`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import unknown
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.classical_classifiers import SUITE
from fedsynth.nn.classifiers.registry import CLASSIFIERS
from fedsynth.nn.transforms.augment import dsa_operations

LOOKS_CAPPED = 20  # tests on the way, of a capped training that is tested on the way
MNIST_MEAN, MNIST_STD = 0.1307, 0.3081  # which paper 001 scales all its data with
MIN_STEPS = 50  # a cap on images never cuts a schedule below this many steps
STILL = ("fashion_mnist",)  # every picture shows its thing in the same place: moved, it only blurs


@dataclass(frozen=True)
class ParticipationSchedule:
    """Steps of SGD and the step after which the learning rate drops, once."""

    steps: int
    drop_after: int
    epochs: float  # passes over the set that these steps make
    capped: bool = False  # cut short by a cap on images


@dataclass(frozen=True)
class Protocol:
    """One published way to train the classifier. `epochs` is the E of the papers, whose loops run
    E + 1 passes and lower the rate after pass number E // 2 + 1, counted from 0."""

    name: str
    summary: str
    augmentation: Literal["crop_scale_rotate", "dsa", "affine", "none"]
    scaling: Literal["standardised", "symmetric", "pixels", "mnist"]
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
    extra_pass: int = 1  # passes made beyond E
    drop_share: float | None = None  # share of E after which the rate falls, in place of E // 2 + 1
    enough_steps: int = 0  # E lies between the two so that steps are about as many; 0: either E
    judges: tuple[str, ...] = ("convnet",)  # the classifiers it was published with
    classifiers: tuple[str, ...] = CLASSIFIERS  # those it can train
    most: int = 0  # images of a released set it uses, at most, classes alike; 0: all
    optimistic: bool = False  # tested after every pass, so that the best can be told apart
    calibrated: bool = False  # also in shares of what the same classifier reaches on real data

    def optimiser(self, weights: Iterable[torch.Tensor], rate: float) -> torch.optim.Optimizer:
        """A fresh optimiser at this learning rate."""
        if self.one_cycle:
            return torch.optim.AdamW(weights, rate, weight_decay=self.weight_decay, fused=True)
        return torch.optim.SGD(
            weights, rate, momentum=self.momentum, weight_decay=self.weight_decay, fused=True
        )

    def schedule(self, images: int, epochs: int = 0, max_images: int = 0) -> ParticipationSchedule:
        """The schedule for a set of this size; `epochs` replaces E, `max_images` caps the image
        passes (0: neither). A cap cuts the steps and moves the drop along in proportion."""
        a_pass = math.ceil(images / self.batch)
        last = epochs or self._epochs(images, a_pass)
        steps = (last + self.extra_pass) * a_pass
        kept = last // 2 + 2 if self.drop_share is None else round(last * self.drop_share)
        drop_after, capped = kept * a_pass, False
        if max_images:
            allowed = max(int(max_images / images * a_pass), MIN_STEPS)
            if capped := allowed < steps:
                steps, drop_after = allowed, round(allowed * drop_after / steps)
        return ParticipationSchedule(steps, min(drop_after, steps), steps / a_pass, capped)

    def _epochs(self, images: int, a_pass: int) -> int:
        """E for a set of so many images, of so many steps a pass."""
        if self.enough_steps:
            enough = math.ceil(self.enough_steps / a_pass) - self.extra_pass
            return min(self.epochs, max(enough, self.epochs_large))
        return self.epochs_large if images >= self.large_from else self.epochs

    def scaled(self, pixels: torch.Tensor, info: DatasetInfo) -> torch.Tensor:
        """Pixels (0 black, 1 white) in the scale this protocol trains in."""
        if self.scaling == "symmetric":
            return (pixels - 0.5) / 0.5
        if self.scaling == "pixels":
            return pixels.clamp(0, 1)
        if self.scaling == "mnist":
            return (pixels.clamp(0, 1) - MNIST_MEAN) / MNIST_STD
        mean = torch.tensor(info.mean, device=pixels.device).view(1, -1, 1, 1)
        std = torch.tensor(info.std, device=pixels.device).view(1, -1, 1, 1)
        return (pixels - mean) / std

    def strategy(self, info: DatasetInfo) -> tuple[str, ...]:
        """The augmentations the protocol picks from for this data; empty means none."""
        if info.kind == DataKind.TABLE:
            return ()
        if self.augmentation == "none":
            return ()
        if self.augmentation == "affine":
            return () if info.name in STILL else ("affine",)
        if self.augmentation == "crop_scale_rotate":
            return () if info.name == "cifar10" else ("crop", "scale", "rotate")
        return dsa_operations(info)


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
    "G": Protocol(
        "G",
        "GS-WGAN: 13 classifiers on 60,000 images in [0, 1], average and calibrated average",
        augmentation="none",
        scaling="mnist",  # of the CNN; the others see pixels
        epochs=50,
        epochs_large=50,
        runs=1,
        batch=128,
        learning_rate=0.02,
        weight_decay=1e-4,
        extra_pass=0,
        drop_share=0.8,
        judges=SUITE,
        classifiers=SUITE,
        most=60_000,
        calibrated=True,
    ),
    "L": Protocol(
        "L",
        "DataLens: pixels in [0, 1], Keras-like CNN, plain SGD, E=600 on 100,000 images",
        augmentation="none",
        scaling="pixels",
        epochs=600,
        epochs_large=600,
        runs=1,
        batch=512,
        learning_rate=2e-3,
        drop=1.0,
        momentum=0.0,
        weight_decay=0.0,
        extra_pass=0,
        judges=("keras_cnn",),
        most=100_000,
        optimistic=True,
    ),
    "S": Protocol(
        "S",
        "student of sketch_teach: [0, 1], mild affine (not of clothes), AdamW in one cycle, 2,500 "
        "steps, E >= 7",
        augmentation="affine",
        scaling="pixels",
        epochs=300,
        epochs_large=7,
        runs=2,
        batch=128,
        learning_rate=3e-3,
        weight_decay=0.01,
        one_cycle=True,
        enough_steps=2500,
        judges=("poolnet",),
    ),
}


def protocol(name: str) -> Protocol:
    """The protocol of this name."""
    if name not in PROTOCOLS:
        raise unknown("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]
