"""A small set out of a large one that is released already: optimised, not drawn. Post-processing.

`features` moves the images of a class so that random networks see on average what they see in the
large set (`_distribution`); `gradients` so that all of them together teach a fresh network what the
large set would teach it (`_matching`). Both start from images of the large set.
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
SHOWN = 64  # images of a class of the large set in one step
FEATURE_RATE = 0.2  # of the images, each of which is one of `spc` in a mean
GRADIENT_RATE = 0.2
UPDATES = 3  # image steps for one gradient of the large set


@dataclass(frozen=True)
class CondensationConfig:
    """How few images are made of many."""

    way: str  # features or gradients
    spc: int
    steps: int
    width: int  # of the networks that look

    def cost(self, classes: int) -> tuple[ComputeCost, ...]:
        """What it computes; the images of the large set only go forward."""
        images = self.spc * classes
        if self.way == GRADIENTS:
            return (ComputeCost("match", self.width, images, self.steps * UPDATES),)
        return (ComputeCost("train", self.width, images + classes * SHOWN // 3, self.steps),)

    def of(
        self,
        large: SyntheticSet,
        data: DatasetInfo,
        *,
        key: tuple[object, ...],
        device: torch.device,
    ) -> SyntheticSet:
        """`spc` images of every class that the large set has, as bytes, with its labels."""
        places = {
            name: torch.nonzero(large.labels == name).flatten()
            for name in large.labels.unique().tolist()
        }
        first = torch.cat([_some(mine, self.spc) for mine in places.values()])
        start = large.pixels()[first]
        match = _by_gradients if self.way == GRADIENTS else _by_features
        made = match(self, large, places, start, data, key=(*key, self.way), device=device)
        images = (made.pixels().clamp(0, 1) * 255).round().to(torch.uint8)
        return SyntheticSet(images, made.labels)


def _some(places: torch.Tensor, n: int) -> torch.Tensor:
    """The first n of them, over again where there are fewer."""
    return places.repeat(-(-n // len(places)))[:n]


def _within_pixels(moved: CondensedImages | MatchedImages) -> None:
    """Put back what has left the range of a byte, from where rounding would only undo it."""
    black, white = (moved.scale.to_network(torch.tensor([[[[end]]]])) for end in (0.0, 1.0))
    moved.images = moved.images.clamp(black.to(moved.images), white.to(moved.images))


def _by_features(
    how: CondensationConfig,
    large: SyntheticSet,
    places: Mapping[int, torch.Tensor],
    start: torch.Tensor,
    data: DatasetInfo,
    *,
    key: tuple[object, ...],
    device: torch.device,
) -> SyntheticSet:
    cfg = DistributionConfig(
        spc=how.spc,
        iterations=how.steps,
        image_rate=FEATURE_RATE * how.spc,
        image_rate_end=0.0,
        width=how.width,
    )
    condensed = CondensedImages(cfg, data, list(places), key, device)
    condensed.images = condensed.scale.to_network(start).to(device)
    scale = torch.full((len(places),), 1 / how.spc)
    for number in range(how.steps):
        step, generator = condensed.step(number), torch_generator(*key, "shown", number)
        shown = [
            mine[torch.randint(0, len(mine), (SHOWN,), generator=generator)]
            for mine in places.values()
        ]
        chosen = torch.cat(shown)
        pixels = SyntheticSet(large.images[chosen], large.labels[chosen]).pixels().to(device)
        rows = condensed.real_rows(step, pixels, large.labels[chosen])
        condensed.match(step, rows.view(len(places), SHOWN, -1).mean(1), scale, bound=None)
        _within_pixels(condensed)
    return condensed.result()


def _by_gradients(
    how: CondensationConfig,
    large: SyntheticSet,
    places: Mapping[int, torch.Tensor],
    start: torch.Tensor,
    data: DatasetInfo,
    *,
    key: tuple[object, ...],
    device: torch.device,
) -> SyntheticSet:
    cfg = MatchingConfig(
        spc=how.spc,
        runs=how.steps,
        outer=1,
        inner=0,
        batches=1,
        image_rate=GRADIENT_RATE,
        updates=UPDATES,
        width=how.width,
    )
    matched = MatchedImages(cfg, data, list(places), key, device)
    matched.images = matched.scale.to_network(start).to(device)

    def gradient(net: torch.nn.Module, call: int) -> list[torch.Tensor]:
        generator = torch_generator(*key, "shown", call)
        chosen = torch.randint(0, len(large.labels), (SHOWN * len(places),), generator=generator)
        part = SyntheticSet(large.images[chosen], large.labels[chosen])
        images = matched.scale.to_network(part.pixels()).to(device)
        return loss_and_gradients(net, images, part.labels.to(device))[1]

    for run in range(how.steps):
        match_run(matched, run, gradient)
        _within_pixels(matched)
    return matched.result()
