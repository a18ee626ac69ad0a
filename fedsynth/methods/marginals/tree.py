"""A tree of columns: chosen by scores of pairs, fitted to noised tables, and drawn from.

On a tree the distribution that agrees with the tables of all edges is known in closed form: the
root's distribution times one conditional distribution per edge. No iterative inference is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Edge = tuple[int, int]
"""A parent and a child."""

_ROUNDS = 60  # of proportional fitting
_FLOOR = 1e-9  # the share of every cell that fitting may raise


def spanning_tree(scores: np.ndarray, root: int) -> list[Edge]:
    """The spanning tree with the largest sum of scores, as edges from the root outwards.

    Args:
        scores: A symmetric matrix [columns, columns].
        root: The column to begin with.

    >>> spanning_tree(np.array([[0, 5, 1], [5, 0, 3], [1, 3, 0]]), root=2)
    [(2, 1), (1, 0)]
    """
    inside, edges = [root], []
    while len(inside) < len(scores):
        outside = [column for column in range(len(scores)) if column not in inside]
        edge = max(((a, b) for a in inside for b in outside), key=lambda e: scores[e])
        edges.append(edge)
        inside.append(edge[1])
    return edges


def project(counts: np.ndarray, total: float) -> np.ndarray:
    """The nearest counts in L2 that are not negative and have this sum.

    >>> project(np.array([5.0, -2.0, 1.0]), 4.0).tolist()
    [4.0, 0.0, 0.0]
    """
    ordered = np.sort(counts, axis=None)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, ordered.size + 1)
    kept = np.flatnonzero(ordered > excess)
    return np.maximum(counts - excess[kept[-1] if len(kept) else 0], 0.0)


def fit_table(noised: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """A table with these sums of rows and columns, near noised counts: their projection, fitted
    proportionally."""
    total = rows.sum()
    table = project(noised, total) + _FLOOR * np.outer(rows, columns) / max(total, 1e-300)
    for _ in range(_ROUNDS):
        table *= _ratio(rows, table.sum(1))[:, None]
        table *= _ratio(columns, table.sum(0))[None, :]
    return table


def _ratio(wanted: np.ndarray, found: np.ndarray) -> np.ndarray:
    return np.divide(wanted, found, out=np.zeros_like(wanted), where=found > 0)


@dataclass(frozen=True)
class Measured:
    """A noised estimate of the counts of one column, and the variance of each."""

    counts: np.ndarray
    variance: np.ndarray


def combine(estimates: Sequence[Measured], total: float) -> np.ndarray:
    """Counts from several unbiased estimates, weighted by their precision, with this sum."""
    weights = np.stack([1 / measured.variance for measured in estimates])
    values = np.stack([measured.counts for measured in estimates])
    return project((weights * values).sum(0) / weights.sum(0), total)


@dataclass(frozen=True)
class ColumnTree:
    """A distribution over rows of codes.

    Attributes:
        root: The column that the edges lead away from.
        edges: Parents and children, in an order in which every parent comes first.
        tables: The counts [codes of the parent, codes of the child] of each edge.
    """

    root: int
    edges: Sequence[Edge]
    tables: Mapping[Edge, np.ndarray]

    def draw(self, root_codes: np.ndarray, rng: np.random.Generator) -> dict[int, np.ndarray]:
        """Codes of all columns for rows whose root has these codes."""
        codes = {self.root: root_codes}
        for parent, child in self.edges:
            codes[child] = draw_given(self.tables[parent, child], codes[parent], rng)
        return codes


def draw_given(table: np.ndarray, given: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A code per row, by the distribution that a table has for the row's given code.

    The number of rows of each code differs from its expectation by less than one, so that drawing
    adds little error."""
    drawn = np.empty(len(given), np.int64)
    for code in np.unique(given):
        rows = np.flatnonzero(given == code)
        weights = table[code]
        if weights.sum() <= 0:
            weights = table.sum(0)
        edges = np.floor(len(rows) * np.cumsum(weights) / weights.sum() + rng.random())
        edges[-1] = len(rows)
        counts = np.diff(np.minimum(edges, len(rows)), prepend=0).astype(np.int64)
        drawn[rng.permutation(rows)] = np.repeat(np.arange(table.shape[1]), counts)
    return drawn
