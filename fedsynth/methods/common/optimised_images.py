"""Synthetic images that a method moves step by step until they resemble what it learned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.data.normalization import Normalizer


class ImageConfig(Protocol):
    """The settings of the images."""

    @property
    def spc(self) -> int:
        """Synthetic images per class."""

    @property
    def image_init(self) -> float:
        """Standard deviation of the first images."""

    @property
    def image_momentum(self) -> float:
        """Momentum of the images."""


I = TypeVar("I", bound=ImageConfig)  # noqa: E741


class OptimisedImages(Generic[I]):
    """The synthetic images of some classes while they are being optimised.

    They are in the scale of the networks, class after class."""

    def __init__(
        self,
        cfg: I,
        data: DatasetInfo,
        classes: Iterable[int],
        key: tuple[object, ...],
        device: torch.device | str = "cpu",
    ) -> None:
        """Set the first images, under this key of public randomness."""
        self.cfg, self.data, self.key = cfg, data, key
        self.classes, self.scale = tuple(classes), self.normalizer()
        labels = torch.tensor(self.classes, dtype=torch.int64)
        self.labels = labels.repeat_interleave(cfg.spc).to(device)
        self.start()

    def normalizer(self) -> Normalizer:
        """The scale of the images: around the data set's mean, in its deviations."""
        return Normalizer.standard(self.data)

    def start(self) -> None:
        """Set the first images: noise around zero."""
        generator = torch_generator(*self.key, "images")
        noise = torch.randn((len(self.labels), *self.data.shape), generator=generator)
        self.images = (noise * self.cfg.image_init).to(self.labels.device)
        self.velocity = torch.zeros_like(self.images)

    @property
    def state(self) -> dict[str, Any]:
        """The state to checkpoint; restored in place."""
        return {"images": self.images, "velocity": self.velocity}

    def descend(self, gradient: Tensor, learning_rate: float) -> None:
        """Take one step of SGD with momentum against this gradient at the images."""
        self.velocity.mul_(self.cfg.image_momentum).add_(gradient)
        self.images.sub_(self.velocity, alpha=learning_rate)

    def result(self) -> SyntheticSet:
        """The current images, in pixel scale."""
        pixels = self.scale.to_pixels(self.images.detach()).cpu()
        return SyntheticSet(pixels, self.labels.cpu())
