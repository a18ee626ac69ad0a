"""Small outcomes of stages."""

from __future__ import annotations

import torch

from fedsynth.core.outcomes import ReleasedModel, SyntheticSet


def synthetic(n: int = 20, channels: int = 1) -> SyntheticSet:
    generator = torch.Generator().manual_seed(n)
    images = torch.randn(n, channels, 28, 28, generator=generator)
    return SyntheticSet(images, torch.arange(n) % 2 + 5)


def soft() -> SyntheticSet:
    plain = synthetic(6)
    return SyntheticSet(plain.images, plain.labels, torch.rand(6, 10))


def model() -> ReleasedModel:
    state = {
        "body.0.weight": torch.randn(4, 1, 3, 3),
        "file": torch.arange(3),
        "s": torch.tensor(2),
    }
    return ReleasedModel(state, width=32)
