"""Condensation of a set that is released already: few optimised images in place of many drawn ones.

`features` moves the images of a class so that random networks give them, on average, the features
they give the large set (`distribution_matching`); `gradients` so that all of them together give a
fresh network the gradient that the large set gives it (`psg.gradient_matching`). Both start from
images of the large set, and both are post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import ComputeCost, DatasetInfo
from fedsynth.methods.dpdc.distribution_matching import CondensedImages, DistributionConfig
from fedsynth.methods.psg.gradient_matching import MatchedImages, MatchingConfig, match_run
from fedsynth.nn.per_example.gradients import loss_and_gradients

NONE, FEATURES, GRADIENTS = "none", "features", "gradients"
WAYS = (NONE, FEATURES, GRADIENTS)
BATCH_PER_CLASS = 64  # images of a class of the large set in one step
FEATURE_LEARNING_RATE = 0.2  # of the images, each of which is one of `spc` in a mean
GRADIENT_LEARNING_RATE = 0.2
UPDATES = 3  # image steps per gradient of the large set


@dataclass(frozen=True)
class CondensationConfig:
    """The settings of a condensation."""

    way: str  # features or gradients
    spc: int
    steps: int
    width: int  # of the random networks

    def cost(self, classes: int) -> tuple[ComputeCost, ...]:
        """Its work; the images of the large set need no backward pass."""
        images = self.spc * classes
        if self.way == GRADIENTS:
            return (ComputeCost("match", self.width, images, self.steps * UPDATES),)
        batch = images + classes * BATCH_PER_CLASS // 3
        return (ComputeCost("train", self.width, batch, self.steps),)


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
    members = {
        label: torch.nonzero(large.labels == label).flatten()
        for label in large.labels.unique().tolist()
    }
    first = torch.cat([_repeated(indices, cfg.spc) for indices in members.values()])
    start = large.pixels()[first]
    match = _by_gradients if cfg.way == GRADIENTS else _by_features
    small = match(cfg, large, members, start, data, key=(*key, cfg.way), device=device)
    images = (small.pixels().clamp(0, 1) * 255).round().to(torch.uint8)
    return SyntheticSet(images, small.labels)


def _repeated(indices: torch.Tensor, n: int) -> torch.Tensor:
    """The first n indices, repeated from the start where there are fewer."""
    return indices.repeat(-(-n // len(indices)))[:n]


def _clamp_to_bytes(moved: CondensedImages | MatchedImages) -> None:
    """Clamp the images to the range of a byte, outside of which rounding would undo a step."""
    black, white = (moved.scale.to_network(torch.tensor([[[[end]]]])) for end in (0.0, 1.0))
    moved.images = moved.images.clamp(black.to(moved.images), white.to(moved.images))


def _by_features(
    cfg: CondensationConfig,
    large: SyntheticSet,
    members: Mapping[int, torch.Tensor],
    start: torch.Tensor,
    data: DatasetInfo,
    *,
    key: tuple[object, ...],
    device: torch.device,
) -> SyntheticSet:
    settings = DistributionConfig(
        spc=cfg.spc,
        iterations=cfg.steps,
        image_learning_rate=FEATURE_LEARNING_RATE * cfg.spc,
        image_learning_rate_end=0.0,
        width=cfg.width,
    )
    condensed = CondensedImages(settings, data, list(members), key, device)
    condensed.images = condensed.scale.to_network(start).to(device)
    scale = torch.full((len(members),), 1 / cfg.spc)
    for number in range(cfg.steps):
        step, generator = condensed.step(number), torch_generator(*key, "shown", number)
        batch = torch.cat(
            [
                indices[torch.randint(0, len(indices), (BATCH_PER_CLASS,), generator=generator)]
                for indices in members.values()
            ]
        )
        pixels = SyntheticSet(large.images[batch], large.labels[batch]).pixels().to(device)
        rows = condensed.real_rows(step, pixels, large.labels[batch])
        means = rows.view(len(members), BATCH_PER_CLASS, -1).mean(1)
        condensed.match(step, means, scale, bound=None)
        _clamp_to_bytes(condensed)
    return condensed.result()


def _by_gradients(
    cfg: CondensationConfig,
    large: SyntheticSet,
    members: Mapping[int, torch.Tensor],
    start: torch.Tensor,
    data: DatasetInfo,
    *,
    key: tuple[object, ...],
    device: torch.device,
) -> SyntheticSet:
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
    matched = MatchedImages(settings, data, list(members), key, device)
    matched.images = matched.scale.to_network(start).to(device)

    def gradient(net: torch.nn.Module, call: int) -> list[torch.Tensor]:
        generator, size = torch_generator(*key, "shown", call), (BATCH_PER_CLASS * len(members),)
        batch = torch.randint(0, len(large.labels), size, generator=generator)
        part = SyntheticSet(large.images[batch], large.labels[batch])
        images = matched.scale.to_network(part.pixels()).to(device)
        return loss_and_gradients(net, images, part.labels.to(device))[1]

    for run in range(cfg.steps):
        match_run(matched, run, gradient)
        _clamp_to_bytes(matched)
    return matched.result()
