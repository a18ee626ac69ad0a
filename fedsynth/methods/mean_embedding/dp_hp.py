"""DP-HP: DP-MERF with truncated Hermite features in place of random ones.

Vinaroz et al., "Hermite Polynomial Features for Private Data Generation", 2022. By Mehler's formula
the Gaussian kernel of two numbers is a series of Hermite polynomials that converges quickly, so few
features approximate it well and less noise is added in all. Two kernels over pixels: their sum,
over every pixel alone, and products over random pairs of pixels.

Departures from the paper: its program releases the product kernel of one pair anew in every epoch;
here the pairs are drawn first, and everything is one release of a single Gaussian mechanism. Its
length scales come from private data; here the scale is a constant.
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
class DPHPConfig(EmbeddingConfig):
    """DP-HP's settings; the orders are the published ones, the length scale is for pixels between
    0 and 1."""

    order: int = setting(100, "highest Hermite order of a single pixel", at_least=0)
    product_order: int = setting(20, "highest Hermite order of each pixel of a pair", at_least=0)
    pairs: int = setting(10, "random pairs of pixels", at_least=1)
    product_share: float = setting(
        0.5, "share of the squared norm for pairs", at_least=0, at_most=1
    )
    length_scale: float = setting(
        0.3, "length scale of the kernel of two pixels", above=0, formerly="length"
    )


def hermite_features(x: Tensor, order: int, length: float) -> Tensor:
    """Features whose products approximate exp(-(x - y)^2 / (2 length^2)): [..., order + 1].

    Mehler's series at rho with rho / (1 - rho^2) = 1 / (2 length^2). All terms are squares for
    x = y, so truncation leaves the norm at one or below."""
    steepness = 1 / (2 * length**2)
    rho = (math.sqrt(1 + 4 * steepness**2) - 1) / (2 * steepness)
    current = (1 - rho**2) ** 0.25 * torch.exp(-rho / (1 + rho) * x.square())
    previous = torch.zeros_like(current)
    features = [current]
    for k in range(order):
        a, b = math.sqrt(2 * rho / (k + 1)), rho * math.sqrt(k / (k + 1))
        previous, current = current, a * x * current - b * previous
        features.append(current)
    return torch.stack(features, dim=-1)


class HermiteFeatures(FeatureMap):
    """Features of all single pixels and of random pairs, of norm at most one together."""

    def __init__(self, cfg: DPHPConfig, inputs: int, key: tuple[object, ...]) -> None:
        self.cfg = cfg
        generator = torch_generator(*key)
        self.first, self.second = torch.randint(inputs, (2, cfg.pairs), generator=generator)
        self.width = feature_count(cfg, inputs)

    def __call__(self, pixels: Tensor) -> Tensor:
        cfg, x = self.cfg, pixels.flatten(1)
        single = hermite_features(x, cfg.order, cfg.length_scale).flatten(1)
        one, two = (
            hermite_features(x[:, pixel.to(x.device)], cfg.product_order, cfg.length_scale)
            for pixel in (self.first, self.second)
        )
        pairs = (one.unsqueeze(3) * two.unsqueeze(2)).flatten(1)
        return torch.cat(
            [
                single * math.sqrt((1 - cfg.product_share) / x.shape[1]),
                pairs * math.sqrt(cfg.product_share / cfg.pairs),
            ],
            dim=1,
        )


def feature_count(cfg: DPHPConfig, inputs: int) -> int:
    """The number of features of an image with so many pixels."""
    return inputs * (cfg.order + 1) + cfg.pairs * (cfg.product_order + 1) ** 2


class DPHP(EmbeddingMethod[DPHPConfig]):
    """DP-HP, in one release."""

    name = "dp_hp"
    summary = "A generator trained on one noised mean of Hermite features of pixels and pairs"
    source = "Vinaroz et al. 2022, Hermite Polynomial Features for Private Data Generation"
    presets = {
        "smoke": {"order": 10, "product_order": 10, "pairs": 50, "spc": 200, "steps": 250},
        "laptop": {"order": 10, "product_order": 10, "pairs": 200, "spc": 1000, "steps": 1000},
    }

    def width(self, cfg: DPHPConfig, data: DatasetInfo) -> int:
        return feature_count(cfg, math.prod(data.shape))

    def features(self, cfg: DPHPConfig, data: DatasetInfo, seed: object) -> FeatureMap:
        return HermiteFeatures(cfg, math.prod(data.shape), (seed, self.name, "pairs"))
