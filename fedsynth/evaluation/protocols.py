"""Published protocols for training a classifier on a released set before it is tested.

Protocol P is PSG's (papers 003 and 000), protocol D is that of LDPDC and NDPDC (paper 002),
protocol G is the thirteen classifiers of GS-WGAN (paper 001), protocol L is that of DataLens and
G-PATE (paper 004), and protocol S trains the students of `sketch_teach`. Accuracies under different
protocols are not comparable, hence every result carries the name of its protocol. No protocol
selects anything on the test set: the network after the last epoch of a fixed schedule is tested.
The best epoch on the test set, which one paper reports (L), is a separate metric,
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
from fedsynth.data.normalization import Normalizer
from fedsynth.evaluation.classical_classifiers import SUITE
from fedsynth.nn import optimizers
from fedsynth.nn.classifiers.registry import CLASSIFIERS
from fedsynth.nn.transforms.augment import dsa_operations

MAX_TESTS_IF_CAPPED = 20  # of a training with a test after every epoch, if a cap cut its schedule
MNIST_MEAN, MNIST_STD = 0.1307, 0.3081  # paper 001 standardises all its data with these
MIN_STEPS = 50  # a cap on images never cuts a schedule to fewer steps
ALIGNED = ("fashion_mnist",)  # objects are aligned already, so affine augmentation only blurs


@dataclass(frozen=True)
class TrainingSchedule:
    """Number of SGD steps, and the step after which the learning rate drops once."""

    steps: int
    drop_after: int
    epochs: float  # that these steps amount to
    capped: bool = False  # cut short by a cap on images


@dataclass(frozen=True)
class Protocol:
    """A published way of training a classifier.

    `epochs` is the E of the papers, whose loops run E + 1 epochs and lower the learning rate after
    epoch number E // 2 + 1, counted from 0.
    """

    name: str
    summary: str
    augmentation: Literal["crop_scale_rotate", "dsa", "affine", "none"]
    scaling: Literal["standardised", "symmetric", "pixels", "mnist"]
    epochs: int
    epochs_large: int
    large_set: int = 5000  # sets of at least so many images are trained for epochs_large
    repetitions: int = 3  # fresh networks of each kind
    batch: int = 256
    learning_rate: float = 0.01
    learning_rate_drop: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    one_cycle: bool = False  # AdamW with one cycle of the learning rate instead of SGD with a drop
    extra_epochs: int = 1  # beyond E
    drop_fraction: float | None = None  # of E, after which the drop comes; None: E // 2 + 1 epochs
    target_steps: int = 0  # choose E between the two for about so many steps; 0: one of the two
    default_classifiers: tuple[str, ...] = ("convnet",)  # as published
    classifiers: tuple[str, ...] = CLASSIFIERS  # allowed ones
    max_train_images: int = 0  # of a released set, balanced over classes; 0: all
    test_every_epoch: bool = False  # also report the best epoch
    calibrated: bool = False  # also report accuracy relative to training on real data

    def optimiser(
        self, parameters: Iterable[torch.Tensor], learning_rate: float
    ) -> torch.optim.Optimizer:
        """A new optimiser."""
        if self.one_cycle:
            return optimizers.AdamW(
                parameters, learning_rate, weight_decay=self.weight_decay, fused=True
            )
        return optimizers.SGD(
            parameters,
            learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            fused=True,
        )

    def schedule(self, images: int, epochs: int = 0, max_images: int = 0) -> TrainingSchedule:
        """The schedule for a set of this size.

        Args:
            images: size of the training set.
            epochs: replaces E; 0: the E of the protocol.
            max_images: cap on the image passes; it shortens the schedule and moves the drop in
                proportion. 0: no cap.
        """
        steps_per_epoch = math.ceil(images / self.batch)
        last = epochs or self._epochs(images, steps_per_epoch)
        steps = (last + self.extra_epochs) * steps_per_epoch
        kept = last // 2 + 2 if self.drop_fraction is None else round(last * self.drop_fraction)
        drop_after, capped = kept * steps_per_epoch, False
        if max_images:
            allowed = max(int(max_images / images * steps_per_epoch), MIN_STEPS)
            if capped := allowed < steps:
                steps, drop_after = allowed, round(allowed * drop_after / steps)
        return TrainingSchedule(steps, min(drop_after, steps), steps / steps_per_epoch, capped)

    def _epochs(self, images: int, steps_per_epoch: int) -> int:
        """E for a set of this size."""
        if self.target_steps:
            wanted = math.ceil(self.target_steps / steps_per_epoch) - self.extra_epochs
            return min(self.epochs, max(wanted, self.epochs_large))
        return self.epochs_large if images >= self.large_set else self.epochs

    def normalize(self, pixels: torch.Tensor, info: DatasetInfo) -> torch.Tensor:
        """Convert pixels (0 black, 1 white) to the scale of this protocol."""
        if self.scaling == "symmetric":
            return Normalizer.symmetric(info).to_network(pixels)
        if self.scaling == "pixels":
            return pixels.clamp(0, 1)
        if self.scaling == "mnist":
            return (pixels.clamp(0, 1) - MNIST_MEAN) / MNIST_STD
        return Normalizer.standard(info).to_network(pixels)

    def augmentations(self, info: DatasetInfo) -> tuple[str, ...]:
        """The augmentations that the protocol chooses from for this data; empty: none."""
        if info.kind == DataKind.TABLE or self.augmentation == "none":
            return ()
        if self.augmentation == "affine":
            return () if info.name in ALIGNED else ("affine",)
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
        repetitions=1,
    ),
    "G": Protocol(
        "G",
        "GS-WGAN: 13 classifiers on 60,000 images in [0, 1], average and calibrated average",
        augmentation="none",
        scaling="mnist",  # of the CNN; the others see pixels
        epochs=50,
        epochs_large=50,
        repetitions=1,
        batch=128,
        learning_rate=0.02,
        weight_decay=1e-4,
        extra_epochs=0,
        drop_fraction=0.8,
        default_classifiers=SUITE,
        classifiers=SUITE,
        max_train_images=60_000,
        calibrated=True,
    ),
    "L": Protocol(
        "L",
        "DataLens: pixels in [0, 1], Keras-like CNN, plain SGD, E=600 on 100,000 images",
        augmentation="none",
        scaling="pixels",
        epochs=600,
        epochs_large=600,
        repetitions=1,
        batch=512,
        learning_rate=2e-3,
        learning_rate_drop=1.0,
        momentum=0.0,
        weight_decay=0.0,
        extra_epochs=0,
        default_classifiers=("keras_cnn",),
        max_train_images=100_000,
        test_every_epoch=True,
    ),
    "S": Protocol(
        "S",
        "student of sketch_teach: [0, 1], mild affine (not of clothes), AdamW in one cycle, 2,500 "
        "steps, E >= 7",
        augmentation="affine",
        scaling="pixels",
        epochs=300,
        epochs_large=7,
        repetitions=2,
        batch=128,
        learning_rate=3e-3,
        weight_decay=0.01,
        one_cycle=True,
        target_steps=2500,
        default_classifiers=("poolnet",),
    ),
}


def protocol(name: str) -> Protocol:
    """The protocol of this name; a UserError if there is none."""
    if name not in PROTOCOLS:
        raise unknown("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]
