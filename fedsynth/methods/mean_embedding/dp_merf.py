"""DP-MERF: one noised mean of random Fourier features a class, and a generator that matches it.

Harder, Adamczewski, Park: "DP-MERF", 2021. phi(x) = [cos Wx, sin Wx] / sqrt(D/2) has norm one for
every x, and phi(x) phi(x') approximates a Gaussian kernel of squared length scale s. The published
scales come from a median heuristic on the private data; here they are constants that depend on the
name of the data set or on its shape alone. Noise is calibrated exactly for the Gaussian mechanism
and for add/remove neighbours, with the number of records public.

Tables of numbers and categories get both side by side (`MixedFourier`), and a generator of rows.
Where the paper's heterogeneous features are sqrt(2) long, these share a norm of one.
`labels=noised` is the paper's form for unbalanced data: class weights are released with noise of
their own, and the embedding of every class is divided by its noised weight, by the curator, at no
cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedsynth.core.enums import DataKind
from fedsynth.core.randomness import torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import DatasetInfo
from fedsynth.data.tables import one_hot
from fedsynth.methods.mean_embedding.base import EmbeddingConfig, EmbeddingMethod, FeatureMap

SCALES = {"mnist": 105.0, "fashion_mnist": 127.0}  # published
SCALE_A_PIXEL = 105.0 / 784  # elsewhere: MNIST's, in proportion to the number of values


@dataclass(frozen=True)
class DPMERFConfig(EmbeddingConfig):
    """DP-MERF's settings; the defaults are the published ones."""

    features: int = setting(1000, "random features (D, even)", at_least=2)
    scale: float | None = setting(
        None, "squared length scale s; none: the data set's published one", above=0
    )
    categories: float = setting(
        0.5, "tables: share of a record's squared norm for its categories", at_least=0, at_most=0.99
    )

    def length(self, data: DatasetInfo) -> float:
        """The squared length scale."""
        numbers = sum(1 for column in data.columns if not column.categories)
        values = max(1, numbers) if data.kind == DataKind.TABLE else math.prod(data.shape)
        return self.scale or SCALES.get(data.name, SCALE_A_PIXEL * values)


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


class MixedFourier(FeatureMap):
    """Of tables: random Fourier features of the numbers beside the categories as they are.

    The kernel is a sum: a Gaussian one over the numbers, and the share of categorical columns in
    which two records agree. `categories` is the share of the squared norm that the second gets;
    both together have norm one."""

    def __init__(self, cfg: DPMERFConfig, data: DatasetInfo, key: tuple[object, ...]) -> None:
        self.data = data
        self.columns = sum(1 for column in data.columns if column.categories)
        self.numbers = len(data.columns) - self.columns
        share = cfg.categories if self.columns and self.numbers else float(not self.numbers)
        self.shares = math.sqrt(1 - share), math.sqrt(share)
        self.fourier = RandomFourier(self.numbers, cfg.features, cfg.length(data), key)
        self.width = table_width(cfg, data)

    def __call__(self, records: Tensor) -> Tensor:
        return self._rows(*one_hot(self.data, records))

    def of_drawn(self, drawn: Tensor) -> Tensor:
        return self._rows(drawn[:, : self.numbers], drawn[:, self.numbers :])

    def _rows(self, numbers: Tensor, categories: Tensor) -> Tensor:
        agree = categories / math.sqrt(max(1, self.columns))
        return torch.cat([self.shares[0] * self.fourier(numbers), self.shares[1] * agree], dim=1)


def table_width(cfg: DPMERFConfig, data: DatasetInfo) -> int:
    """How many features a record of this table has."""
    return cfg.features // 2 * 2 + sum(len(column.categories) for column in data.columns)


class DPMERF(EmbeddingMethod[DPMERFConfig]):
    """Random Fourier features."""

    name = "dp_merf"
    summary = "A generator trained on one noised mean of random Fourier features"
    source = "Harder et al. 2021, DP-MERF"
    kinds: ClassVar[tuple[str, ...]] = (DataKind.IMAGE, DataKind.TABLE)
    Config = DPMERFConfig
    presets = {
        "smoke": {"spc": 200, "steps": 250},
        "laptop": {"spc": 1000, "steps": 1000},
        "paper": {},
    }

    def width(self, cfg: DPMERFConfig, data: DatasetInfo) -> int:
        return table_width(cfg, data)

    def features(self, cfg: DPMERFConfig, data: DatasetInfo, seed: object) -> FeatureMap:
        key = (seed, self.name, "frequencies")
        if data.kind == DataKind.TABLE:
            return MixedFourier(cfg, data, key)
        return RandomFourier(math.prod(data.shape), cfg.features, cfg.length(data), key)
