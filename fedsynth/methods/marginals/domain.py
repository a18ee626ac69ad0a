"""Codes of the columns of a table: fine ones from public facts, coarse ones from noised counts.

Fine codes are the categories of a column, its whole numbers, or bins of equal width in its public
range, whose two ends have codes of their own: many columns hold one of them in most records.
Coarse codes merge fine ones that hold few records by the noised counts, so that tables of two
columns have fewer cells, each with more records in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.core.types import Column, DatasetInfo
from fedsynth.data.tables import category_indices


@dataclass(frozen=True)
class FineCodes:
    """The fine codes of one column, from its public description.

    Attributes:
        column: The column.
        size: The number of codes.
        single: True if a code is one value: a category, or a whole number.
    """

    column: Column
    size: int
    single: bool

    @staticmethod
    def of(column: Column, bins: int) -> FineCodes:
        """The codes of a column; one of numbers has at most so many bins between its ends."""
        if column.categories:
            return FineCodes(column, len(column.categories), True)
        numbers = round(column.high) - round(column.low) + 1
        if column.whole and numbers <= bins:
            return FineCodes(column, numbers, True)
        return FineCodes(column, bins + 2, False)

    def encode(self, values: Tensor) -> Tensor:
        """The codes of encoded values in [0, 1], int64."""
        if self.column.categories:
            return category_indices(self.column, values)
        numbers = values.nan_to_num().clamp(0, 1)
        if self.single:
            return numbers.mul(self.size - 1).round().long()
        bins = self.size - 2
        codes = numbers.mul(bins).floor().long().clamp(0, bins - 1) + 1
        return codes.where(numbers > 0, 0).where(numbers < 1, self.size - 1)

    def decode(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Encoded values of codes; those of a bin are drawn evenly from it."""
        if self.single:
            return codes / max(1, self.size - 1)
        values = (codes - 1 + rng.random(len(codes))) / (self.size - 2)
        return values.clip(0, 1)  # the ends


def fine_codes(data: DatasetInfo, bins: int) -> list[FineCodes]:
    """The fine codes of all columns of a table."""
    return [FineCodes.of(column, bins) for column in data.columns]


def merge(codes: FineCodes, counts: np.ndarray, few: float, enough: float) -> np.ndarray:
    """The coarse code of each fine one.

    Args:
        codes: The fine codes.
        counts: Their noised counts, none negative.
        few: Categories with fewer records than this become one.
        enough: Neighbouring numbers are merged until they hold so many records together.

    Returns:
        Coarse codes [fine], from 0 without gaps.

    >>> column = Column("ward", categories=("a", "b", "c", "d"))
    >>> merge(FineCodes.of(column, 0), np.array([90.0, 3, 40, 2]), few=10, enough=50).tolist()
    [0, 2, 1, 2]
    >>> column = Column("age", 0, 5, whole=True)
    >>> merge(FineCodes.of(column, 9), np.array([9.0, 20, 30, 60, 1, 2]), 10, 50).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    if codes.column.categories:
        rare = counts < few
        coarse = np.cumsum(~rare) - 1
        coarse[rare] = (~rare).sum()
        return coarse
    return _intervals(counts, few, enough)


def _intervals(counts: Sequence[float] | np.ndarray, few: float, enough: float) -> np.ndarray:
    """Intervals that hold enough records each; what is left over belongs to the last one. A number
    that alone holds enough has an interval of its own, if those before it are not few."""
    ends: list[int] = []  # an interval ends before each of `ends`
    held, start = 0.0, 0
    for position, count in enumerate(counts):
        if position > start and held >= few and count >= enough:
            ends, held, start = [*ends, position], 0.0, position
        held += count
        if held >= enough:
            ends, held, start = [*ends, position + 1], 0.0, position + 1
    if held < few and ends:  # what is left over, if anything
        ends.pop()
    return np.searchsorted(np.array(ends), np.arange(len(counts)), side="right")


@dataclass(frozen=True)
class CoarseCodes:
    """The coarse codes of one column, and the fine ones that each of them holds.

    Attributes:
        fine: The fine codes.
        coarse_of: The coarse code of each fine one.
        counts: The estimated number of records of each fine code in each group of records, none
            negative: [groups, fine].
    """

    fine: FineCodes
    coarse_of: np.ndarray
    counts: np.ndarray

    @property
    def size(self) -> int:
        """The number of coarse codes."""
        return int(self.coarse_of.max()) + 1

    def encode(self, values: Tensor) -> Tensor:
        """The coarse codes of encoded values."""
        return torch.from_numpy(self.coarse_of).to(values.device)[self.fine.encode(values)]

    def sums(self, counts: np.ndarray) -> np.ndarray:
        """Counts of fine codes [groups, fine] as counts of coarse ones [groups, coarse]."""
        return counts @ self._belongs().T

    def members(self) -> np.ndarray:
        """The number of fine codes of each coarse one."""
        return self._belongs().sum(1)

    def spread(self, group: int) -> np.ndarray:
        """The probabilities of fine codes given the coarse one in a group, [coarse, fine]."""
        belongs = self._belongs()
        weights = belongs * self.counts[group]
        weights = np.where(weights.sum(1, keepdims=True) > 0, weights, belongs)
        return weights / weights.sum(1, keepdims=True)

    def _belongs(self) -> np.ndarray:
        return (np.arange(self.size)[:, None] == self.coarse_of).astype(float)
