"""Resizing of images and conversion to grey.

Claim: this has no privacy cost. Each image is transformed by itself and by a public rule.
"""

from __future__ import annotations

import dataclasses

import torch
from torch.nn import functional

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo

LUMA = (0.299, 0.587, 0.114)  # brightness of red, green and blue
_CHUNK = 4096  # images


@dataclasses.dataclass(frozen=True)
class ImageTransform:
    """A transform of images; the default is the identity."""

    side: int | None = None
    grey: bool = False

    def info(self, data: DatasetInfo) -> DatasetInfo:
        """The public facts of the transformed data.

        The deviation of grey pixels is not published; that of the channels is averaged instead."""
        if self.side is None and not self.grey:
            return data
        if data.kind != DataKind.IMAGE:
            keys = [f"resize={self.side}"] * (self.side is not None) + ["grey=true"] * self.grey
            raise UserError(f"{' and '.join(keys)} is for images, and data={data.name} is a table.")
        channels, height, width = data.shape
        if self.side is not None:
            height = width = self.side
        mean, std = data.mean, data.std
        if self.grey and channels == 3:
            mean = (sum(a * b for a, b in zip(LUMA, mean, strict=True)),)
            std = (sum(std) / 3,)
        shape = (len(mean), height, width)
        return dataclasses.replace(data, shape=shape, mean=mean, std=std)

    def apply(self, images: torch.Tensor) -> torch.Tensor:
        """The transformed images, uint8 [n, c, h, w]."""
        fits = self.side is None or set(images.shape[-2:]) == {self.side}
        if fits and not self._turns_grey(images):
            return images
        return torch.cat([self._transform(part) for part in images.split(_CHUNK)])

    def _transform(self, images: torch.Tensor) -> torch.Tensor:
        pixels = images.float()
        if self._turns_grey(images):
            weights = torch.tensor(LUMA).view(1, 3, 1, 1)
            pixels = (pixels * weights).sum(1, keepdim=True)
        if self.side is not None:
            size = (self.side, self.side)
            pixels = functional.interpolate(pixels, size, mode="bilinear", antialias=True)
        return pixels.round_().clamp_(0, 255).to(torch.uint8)

    def _turns_grey(self, images: torch.Tensor) -> bool:
        return self.grey and images.shape[1] == len(LUMA)

    def in_words(self) -> str:
        """A description of the transform for reports; empty for the identity."""
        steps = [f"made {self.side}x{self.side}"] * (self.side is not None)
        steps += ["made grey"] * self.grey
        return f"images {' and '.join(steps)}" if steps else ""
