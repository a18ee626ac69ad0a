"""DP-MERF: one noised mean of random Fourier features a class, and a generator that matches it.

Harder, Adamczewski, Park: "DP-MERF", 2021. phi(x) = [cos Wx, sin Wx] / sqrt(D/2) has norm one for
every x, and phi(x) phi(x') approximates a Gaussian kernel of squared length scale s. The published
scales come from a median heuristic on the private data; here they are constants that depend on the
name of the data set alone. Noise is calibrated exactly for the Gaussian mechanism and for
add/remove neighbours, with the number of records public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.core import DataFacts
from fedsynth.methods._embedding import EmbeddingConfig, EmbeddingMethod, FeatureMap
from fedsynth.randomness import torch_generator
from fedsynth.settings import setting

SCALES = {"mnist": 105.0, "fashion_mnist": 127.0}  # published
SCALE_A_PIXEL = 105.0 / 784  # elsewhere: MNIST's, in proportion to the number of values


@dataclass(frozen=True)
class DPMERFConfig(EmbeddingConfig):
    """DP-MERF's settings; the defaults are the published ones."""

    features: int = setting(1000, "random features (D, even)", at_least=2)
    scale: float | None = setting(
        None, "squared length scale s; none: the data set's published one", above=0
    )

    def length(self, data: DataFacts) -> float:
        """The squared length scale."""
        return self.scale or SCALES.get(data.name, SCALE_A_PIXEL * math.prod(data.shape))


class RandomFourier(FeatureMap):
    """[cos Wx, sin Wx] / sqrt(D/2) with rows of W from N(0, I / scale): norm one."""

    def __init__(self, inputs: int, features: int, scale: float, key: tuple[object, ...]) -> None:
        generator = torch_generator(*key)
        half = features // 2
        self.frequencies = torch.randn((half, inputs), generator=generator) / math.sqrt(scale)
        self.width = 2 * half

    def __call__(self, pixels: Tensor) -> Tensor:
        self.frequencies = self.frequencies.to(pixels.device)
        angles = pixels.flatten(1) @ self.frequencies.t()
        return torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(self.width / 2)


class DPMERF(EmbeddingMethod):
    """Random Fourier features."""

    name = "dp_merf"
    summary = "A generator trained on one noised mean of random Fourier features"
    source = "Harder et al. 2021, DP-MERF"
    Config = DPMERFConfig
    presets = {
        "smoke": {"spc": 200, "steps": 250},
        "laptop": {"spc": 1000, "steps": 1000},
        "paper": {},
    }

    def width(self, cfg: DPMERFConfig, data: DataFacts) -> int:
        return cfg.features // 2 * 2

    def features(self, cfg: DPMERFConfig, data: DataFacts, seed: object) -> FeatureMap:
        key = (seed, self.name, "frequencies")
        return RandomFourier(math.prod(data.shape), cfg.features, cfg.length(data), key)
