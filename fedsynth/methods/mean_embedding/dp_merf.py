"""DP-MERF: one noised mean of random Fourier features per class, and a generator that matches it.

Harder, Adamczewski, Park, "DP-MERF: Differentially Private Mean Embeddings with Random Features",
2021. phi(x) = [cos Wx, sin Wx] / sqrt(D/2) has norm one for every x, and phi(x) phi(x')
approximates a Gaussian kernel of squared length scale s. Tables of numbers and categories get both
kinds of features side by side (`MixedFourier`), and a generator of rows. `labels=noised` is the
paper's form for unbalanced data: class weights are released with noise of their own, and the server
divides the embedding of every class by its noised weight, at no cost.

Departures from the paper:
- Its length scales come from a median heuristic on the private data; here they are constants that
  depend on the name of the data set or on its shape only.
- Noise is calibrated exactly for the Gaussian mechanism and the add/remove relation, with the
  number of records public.
- Its features of tables have norm sqrt(2); here both kinds share a norm of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from fedsynth.core.enums import DataKind
from fedsynth.core.randomness import torch_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import DatasetInfo
from fedsynth.data.tables import one_hot
from fedsynth.methods.mean_embedding.base import EmbeddingConfig, EmbeddingMethod, FeatureMap

SCALES = {"mnist": 105.0, "fashion_mnist": 127.0}  # published
SCALE_PER_VALUE = 105.0 / 784  # elsewhere: MNIST's, in proportion to the number of values


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

    def squared_length(self, data: DatasetInfo) -> float:
        """The squared length scale."""
        numbers = sum(1 for column in data.columns if not column.categories)
        values = max(1, numbers) if data.kind == DataKind.TABLE else math.prod(data.shape)
        return self.scale or SCALES.get(data.name, SCALE_PER_VALUE * values)


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
    """Features of tables: random Fourier features of numbers, and one-hot categories.

    The kernel is a sum: a Gaussian one over the numbers, and the share of categorical columns in
    which two records agree. `categories` is the second's share of the squared norm; both together
    have norm one."""

    def __init__(self, cfg: DPMERFConfig, data: DatasetInfo, key: tuple[object, ...]) -> None:
        self.data = data
        self.columns = sum(1 for column in data.columns if column.categories)
        self.numbers = len(data.columns) - self.columns
        share = cfg.categories if self.columns and self.numbers else float(not self.numbers)
        self.norms = math.sqrt(1 - share), math.sqrt(share)
        self.fourier = RandomFourier(self.numbers, cfg.features, cfg.squared_length(data), key)
        self.width = feature_count(cfg, data)

    def __call__(self, records: Tensor) -> Tensor:
        return self._rows(*one_hot(self.data, records))

    def of_generated(self, outputs: Tensor) -> Tensor:
        return self._rows(outputs[:, : self.numbers], outputs[:, self.numbers :])

    def _rows(self, numbers: Tensor, categories: Tensor) -> Tensor:
        one_hots = categories / math.sqrt(max(1, self.columns))
        fourier = self.fourier(numbers)
        return torch.cat([self.norms[0] * fourier, self.norms[1] * one_hots], dim=1)


def feature_count(cfg: DPMERFConfig, data: DatasetInfo) -> int:
    """The number of features of a record; an image has no categories."""
    return cfg.features // 2 * 2 + sum(len(column.categories) for column in data.columns)


F = TypeVar("F", bound=DPMERFConfig)


class FourierEmbedding(EmbeddingMethod[F]):
    """An embedding method with random Fourier features."""

    kinds = (DataKind.IMAGE, DataKind.TABLE)

    def width(self, cfg: F, data: DatasetInfo) -> int:
        return feature_count(cfg, data)

    def features(self, cfg: F, data: DatasetInfo, seed: object) -> FeatureMap:
        key = (seed, self.name, "frequencies")
        if data.kind == DataKind.TABLE:
            return MixedFourier(cfg, data, key)
        return RandomFourier(math.prod(data.shape), cfg.features, cfg.squared_length(data), key)


class DPMERF(FourierEmbedding[DPMERFConfig]):
    """DP-MERF as published."""

    name = "dp_merf"
    summary = "A generator trained on one noised mean of random Fourier features"
    source = "Harder et al. 2021, DP-MERF"
    presets = {"smoke": {"spc": 200, "steps": 250}, "laptop": {"spc": 1000, "steps": 1000}}
