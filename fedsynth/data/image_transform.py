"""Images brought into another form: another size, or grey. Every image by itself, by a public rule,
so nothing is spent and nothing is told."""

from __future__ import annotations

import dataclasses

import torch
from torch.nn import functional

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo

LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue are
_AT_ONCE = 4096  # images


@dataclasses.dataclass(frozen=True)
class ImageTransform:
    """What images are turned into; the default leaves them as they are."""

    side: int | None = None
    grey: bool = False

    def info(self, data: DatasetInfo) -> DatasetInfo:
        """What is public about the data afterwards. The deviation of a grey pixel is not published;
        the mean of the channels' stands for it."""
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
        """The images, uint8 [n, c, h, w], in this form: bytes as well."""
        fits = self.side is None or set(images.shape[-2:]) == {self.side}
        if fits and not self._turns_grey(images):
            return images
        return torch.cat([self._some(part) for part in images.split(_AT_ONCE)])

    def _some(self, images: torch.Tensor) -> torch.Tensor:
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
        """What was done to the images, to be printed beside numbers; empty where nothing was."""
        done = [f"made {self.side}x{self.side}"] * (self.side is not None)
        done += ["made grey"] * self.grey
        return f"images {' and '.join(done)}" if done else ""
