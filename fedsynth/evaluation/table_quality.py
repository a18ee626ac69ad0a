"""Similarity of a released table and real test records: column shapes and pair trends.

The definitions are those of SDMetrics (KSComplement, TVComplement, CorrelationSimilarity and
ContingencySimilarity). The shape of a numeric column is 1 minus the Kolmogorov-Smirnov distance of
its values, that of a categorical column 1 minus the total variation distance of its shares. The
trend of two numeric columns is 1 minus half the difference of their correlations; that of all
other pairs is 1 minus the total variation distance of their joint shares, with numbers in ten bins
of equal width over the real values. 1 is the best. All pairs count, other than in the report of
SDMetrics, which leaves out pairs with little association and takes bins from each table by itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch

from fedsynth.core.types import DatasetInfo
from fedsynth.data.tables import category_indices

BINS = 10  # as in SDMetrics


@dataclass(frozen=True)
class TableColumn:
    """A column of one table: categories by their index, or numbers in their units."""

    values: np.ndarray
    categorical: bool


@dataclass(frozen=True)
class TableQuality:
    """Shapes of all columns, the class last, and trends of all pairs by their positions."""

    shapes: tuple[float, ...]
    trends: dict[tuple[int, int], float]  # nan: a correlation that does not exist

    def rows(self) -> dict[str, float]:
        """The metrics of one stage; columns count from 1 in names."""
        trends = [trend for trend in self.trends.values() if not math.isnan(trend)]
        rows = {"column_shapes": fmean(self.shapes)}
        if trends:
            rows["pair_trends"] = fmean(trends)
        return rows | {f"shape_of_column_{i}": s for i, s in enumerate(self.shapes, start=1)}


def table_columns(info: DatasetInfo, rows: torch.Tensor, labels: torch.Tensor) -> list[TableColumn]:
    """The columns of a table as a reader sees them: clamped, in units, categories by index.

    The class is the last column."""
    flat = rows.flatten(1)
    columns = []
    for position, column in enumerate(info.columns):
        values = flat[:, position]
        if column.categories:
            columns.append(TableColumn(category_indices(column, values).numpy(), True))
            continue
        numbers = values.double().nan_to_num().clamp(0, 1).numpy()
        numbers = numbers * (column.high - column.low) + column.low
        columns.append(TableColumn(np.rint(numbers) if column.whole else numbers, False))
    return [*columns, TableColumn(labels.numpy(force=True), True)]


def table_quality(real: Sequence[TableColumn], released: Sequence[TableColumn]) -> TableQuality:
    """Compare a released table with real records, column by column and pair by pair."""
    shapes = tuple(
        _total_variation(a.values, b.values)
        if a.categorical
        else _kolmogorov_smirnov(a.values, b.values)
        for a, b in zip(real, released, strict=True)
    )
    binned = [_binned(a, b) for a, b in zip(real, released, strict=True)]
    trends = {}
    for i, j in itertools.combinations(range(len(real)), 2):
        if real[i].categorical or real[j].categorical:
            (real_i, released_i), (real_j, released_j) = binned[i], binned[j]
            width = 1 + int(max(real_j.max(), released_j.max()))
            trends[i, j] = _total_variation(
                real_i * width + real_j, released_i * width + released_j
            )
        else:
            ours = _correlation(released[i].values, released[j].values)
            theirs = _correlation(real[i].values, real[j].values)
            trends[i, j] = 1 - abs(ours - theirs) / 2
    return TableQuality(shapes, trends)


def _kolmogorov_smirnov(real: np.ndarray, released: np.ndarray) -> float:
    """1 minus the largest difference of the two distribution functions."""
    places = np.concatenate([real, released])
    shares = (
        np.searchsorted(np.sort(values), places, side="right") / len(values)
        for values in (real, released)
    )
    return 1 - float(np.abs(np.subtract(*shares)).max())


def _total_variation(real: np.ndarray, released: np.ndarray) -> float:
    """1 minus half the summed differences of the shares of each value."""
    values, codes = np.unique(np.concatenate([real, released]), return_inverse=True)
    shares = (
        np.bincount(part, minlength=len(values)) / len(part)
        for part in (codes[: len(real)], codes[len(real) :])
    )
    return 1 - float(np.abs(np.subtract(*shares)).sum()) / 2


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation; nan if one of the columns is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


def _binned(real: TableColumn, released: TableColumn) -> tuple[np.ndarray, np.ndarray]:
    """Both columns as indices: categories as they are, numbers by the bins of the real ones."""
    if real.categorical:
        return real.values, released.values
    edges = np.histogram_bin_edges(real.values, bins=BINS)
    edges[0], edges[-1] = -np.inf, np.inf
    return np.digitize(real.values, edges), np.digitize(released.values, edges)
