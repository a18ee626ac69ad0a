"""DP-NTK: DP-MERF with the gradients of a random network as features.

After Yang, Adamczewski, Sutherland, Li, Park, "Differentially Private Neural Tangent Kernels for
Privacy-Preserving Data Generation", 2023. The feature of an image is the gradient of a fixed random
network's output with respect to its weights, scaled to norm one, so that products of features are
the network's empirical tangent kernel. The network has one hidden layer of ReLUs and one output; it
is public and never trained, so its depth and width cost nothing but noise: every weight is one more
number that carries noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.core.randomness import torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import DatasetInfo
from fedsynth.methods.mean_embedding.base import EmbeddingConfig, EmbeddingMethod, FeatureMap


@dataclass(frozen=True)
class DPNTKConfig(EmbeddingConfig):
    """DP-NTK's settings; the width is the published one, the generator's settings DP-MERF's."""

    hidden: int = setting(800, "units of the random network's hidden layer", at_least=1)


class TangentFeatures(FeatureMap):
    """The gradient of sum_k a_k relu(w_k (x, 1)) at all w and a, scaled to norm one."""

    def __init__(self, inputs: int, hidden: int, key: tuple[object, ...]) -> None:
        generator = torch_generator(*key)
        self.inner = torch.randn((hidden, inputs + 1), generator=generator)
        self.outer = torch.randn(hidden, generator=generator)
        self.width = hidden * (inputs + 2)

    def __call__(self, pixels: Tensor) -> Tensor:
        x, gradients, units = self._parts(pixels)
        return torch.cat([(gradients.unsqueeze(2) * x.unsqueeze(1)).flatten(1), units], dim=1)

    def weighted_sums(self, outputs: Tensor, weights: Tensor) -> Tensor:
        x, gradients, units = self._parts(outputs)
        by_class = weights.t().unsqueeze(2) * gradients
        return torch.cat([(by_class.transpose(1, 2) @ x).flatten(1), weights.t() @ units], dim=1)

    def _parts(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, gradients and units: a row of features is (gradients x inputs, units)."""
        self.inner, self.outer = self.inner.to(pixels.device), self.outer.to(pixels.device)
        x = torch.cat([pixels.flatten(1), pixels.new_ones(len(pixels), 1)], dim=1)
        units = (x @ self.inner.t()).relu()
        gradients = self.outer * (units > 0)
        squares = gradients.square().sum(1) * x.square().sum(1) + units.square().sum(1)
        norms = squares.clamp_min(1e-12).sqrt().unsqueeze(1)
        return x, gradients / norms, units / norms


class DPNTK(EmbeddingMethod[DPNTKConfig]):
    """DP-NTK with one hidden layer."""

    name = "dp_ntk"
    summary = "A generator trained on one noised mean of a random network's gradients"
    source = "Yang et al. 2023, Differentially Private Neural Tangent Kernels"
    presets = {
        "smoke": {"hidden": 50, "spc": 200, "steps": 250},
        "laptop": {"hidden": 100, "spc": 1000, "steps": 1000},
    }

    def width(self, cfg: DPNTKConfig, data: DatasetInfo) -> int:
        return cfg.hidden * (math.prod(data.shape) + 2)

    def features(self, cfg: DPNTKConfig, data: DatasetInfo, seed: object) -> FeatureMap:
        return TangentFeatures(math.prod(data.shape), cfg.hidden, (seed, self.name, "network"))
