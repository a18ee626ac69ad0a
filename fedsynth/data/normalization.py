"""Public normalisation between pixels in [0, 1] and the inputs of a network."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedsynth.core.types import DatasetInfo


@dataclass(frozen=True)
class Normalizer:
    """x -> (x - mean) / std per channel, and back.

    The constants are published ones and never computed from records, so that normalisation has no
    privacy cost."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @staticmethod
    def standard(info: DatasetInfo) -> Normalizer:
        """The data set's published mean and standard deviation."""
        return Normalizer(info.mean, info.std)

    @staticmethod
    def symmetric(info: DatasetInfo) -> Normalizer:
        """[0, 1] to [-1, 1], which bounds the norm of a record by the root of its size."""
        half = (0.5,) * len(info.mean)
        return Normalizer(half, half)

    def to_network(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pixels in [0, 1] to network units."""
        centred = pixels - self._per_channel(self.mean, pixels)
        return centred.div_(self._per_channel(self.std, pixels))

    def to_pixels(self, x: torch.Tensor) -> torch.Tensor:
        """Network units to pixels; not clamped."""
        return x * self._per_channel(self.std, x) + self._per_channel(self.mean, x)

    @staticmethod
    def _per_channel(values: tuple[float, ...], like: torch.Tensor) -> torch.Tensor:
        return torch.tensor(values, dtype=like.dtype, device=like.device).view(1, -1, 1, 1)
