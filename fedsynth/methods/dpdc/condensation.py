"""Condensation of a set that is released already: few optimised images in place of many drawn ones.

`features` moves the images of a class so that random networks give them, on average, the features
they give the large set (`distribution_matching`); `gradients` so that all of them together give a
fresh network the gradient that the large set gives it (`psg.gradient_matching`). Both start from
images of the large set, and both are post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import ComputeCost, DatasetInfo
from fedsynth.methods.dpdc.distribution_matching import CondensedImages, DistributionConfig
from fedsynth.methods.psg.gradient_matching import MatchedImages, MatchingConfig, match_run
from fedsynth.nn.per_example.gradients import loss_and_gradients

BATCH_PER_CLASS = 64  # images of a class of the large set in one step
FEATURE_LEARNING_RATE = 0.2  # of the images, each of which is one of `spc` in a mean
GRADIENT_LEARNING_RATE = 0.2
UPDATES = 3  # image steps per gradient of the large set


class Condensation(StrEnum):
    """The way in which few images are made to resemble many."""

    NONE = "none"
    FEATURES = "features"
    GRADIENTS = "gradients"


M = TypeVar("M", CondensedImages, MatchedImages)


@dataclass(frozen=True)
class CondensationConfig:
    """The settings of a condensation."""

    way: Condensation
    spc: int
    steps: int
    width: int  # of the random networks

    def cost(self, classes: int) -> tuple[ComputeCost, ...]:
        """Its work; the images of the large set need no backward pass."""
        images = self.spc * classes
        if self.way == Condensation.GRADIENTS:
            return (ComputeCost("match", self.width, images, self.steps * UPDATES),)
        batch = images + classes * BATCH_PER_CLASS // 3
        return (ComputeCost("train", self.width, batch, self.steps),)


@dataclass(frozen=True)
class LargeSet:
    """A large set that is public, and what its condensation starts from.

    Attributes:
        images: The set.
        data: The public facts of the data set.
        key: The key of public randomness.
        device: The device to compute on.
    """

    images: SyntheticSet
    data: DatasetInfo
    key: tuple[object, ...]
    device: torch.device

    @cached_property
    def members(self) -> Mapping[int, torch.Tensor]:
        """The indices of the images of each class."""
        labels = self.images.labels
        return {c: torch.nonzero(labels == c).flatten() for c in labels.unique().tolist()}

    def first(self, spc: int) -> torch.Tensor:
        """The pixels of the first images of every class, repeated where there are fewer."""
        chosen = [each.repeat(-(-spc // len(each)))[:spc] for each in self.members.values()]
        return self.images.pixels()[torch.cat(chosen)]

    def batch(self, indices: torch.Tensor) -> SyntheticSet:
        """Some images of the set, with their labels."""
        return SyntheticSet(self.images.images[indices], self.images.labels[indices])


def condense(
    cfg: CondensationConfig,
    large: SyntheticSet,
    data: DatasetInfo,
    *,
    key: tuple[object, ...],
    device: torch.device,
) -> SyntheticSet:
    """Make `spc` images of every class of the large set, as bytes, with its labels.

    Args:
        cfg: The settings.
        large: The large set, which is public.
        data: The public facts of the data set.
        key: The key of public randomness.
        device: The device to compute on.
    """
    match = _by_gradients if cfg.way == Condensation.GRADIENTS else _by_features
    small = match(cfg, LargeSet(large, data, (*key, cfg.way), device))
    images = (small.pixels().clamp(0, 1) * 255).round().to(torch.uint8)
    return SyntheticSet(images, small.labels)


def _started(moved: M, large: LargeSet) -> M:
    """The images, started from those of the large set."""
    moved.images = moved.scale.to_network(large.first(moved.cfg.spc)).to(large.device)
    return moved


def _clamp_to_bytes(moved: CondensedImages | MatchedImages) -> None:
    """Clamp the images to the range of a byte, outside of which rounding would undo a step."""
    black, white = (moved.scale.to_network(torch.tensor([[[[end]]]])) for end in (0.0, 1.0))
    moved.images = moved.images.clamp(black.to(moved.images), white.to(moved.images))


def _by_features(cfg: CondensationConfig, large: LargeSet) -> SyntheticSet:
    members, key, device = large.members, large.key, large.device
    settings = DistributionConfig(
        spc=cfg.spc,
        iterations=cfg.steps,
        image_learning_rate=FEATURE_LEARNING_RATE * cfg.spc,
        image_learning_rate_end=0.0,
        width=cfg.width,
    )
    condensed = _started(CondensedImages(settings, large.data, members, key, device), large)
    scale = torch.full((len(members),), 1 / cfg.spc)
    for number in range(cfg.steps):
        step, generator = condensed.step(number), torch_generator(*key, "shown", number)
        batch = large.batch(
            torch.cat(
                [
                    indices[torch.randint(0, len(indices), (BATCH_PER_CLASS,), generator=generator)]
                    for indices in members.values()
                ]
            )
        )
        rows = condensed.real_rows(step, batch.pixels().to(device), batch.labels)
        means = rows.view(len(members), BATCH_PER_CLASS, -1).mean(1)
        condensed.match(step, means, scale, bound=None)
        _clamp_to_bytes(condensed)
    return condensed.result()


def _by_gradients(cfg: CondensationConfig, large: LargeSet) -> SyntheticSet:
    members, key, device = large.members, large.key, large.device
    settings = MatchingConfig(
        spc=cfg.spc,
        runs=cfg.steps,
        outer=1,
        inner=0,
        batches=1,
        image_learning_rate=GRADIENT_LEARNING_RATE,
        updates=UPDATES,
        width=cfg.width,
    )
    matched = _started(MatchedImages(settings, large.data, members, key, device), large)

    def gradient(net: torch.nn.Module, call: int) -> list[torch.Tensor]:
        generator, size = torch_generator(*key, "shown", call), (BATCH_PER_CLASS * len(members),)
        batch = large.batch(torch.randint(0, len(large.images.labels), size, generator=generator))
        images = matched.scale.to_network(batch.pixels()).to(device)
        return loss_and_gradients(net, images, batch.labels.to(device))[1]

    for run in range(cfg.steps):
        match_run(matched, run, gradient)
        _clamp_to_bytes(matched)
    return matched.result()
