"""A model of a table from three noised measurements: columns, distances of pairs, pairs on a tree.

Records are in groups: one group, in which the label is a column like the others, or a group per
class. Every table is measured per group; the tree is common to all groups.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.methods.marginals.config import MSTConfig, NoiseMultipliers
from fedsynth.methods.marginals.domain import CoarseCodes, FineCodes, fine_codes, merge
from fedsynth.methods.marginals.tree import (
    ColumnTree,
    Edge,
    Measured,
    combine,
    draw_given,
    fit_table,
    project,
    spanning_tree,
)
from fedsynth.privacy.mechanisms.marginals import MarginalCounts, PairDistances

Arrays = list[np.ndarray]


class Measure(Protocol):
    """Applies a mechanism to the records of a party."""

    def __call__(self, mechanism: MarginalCounts, call: int) -> Arrays:
        """The noised answers of one mechanism; `call` is its number."""


@dataclass(frozen=True)
class TableModel:
    """The distribution of a table, by groups of records.

    Attributes:
        coarse: The codes of all columns but the label.
        trees: One tree of coarse codes per group, all of the same edges.
        roots: The counts of the root's codes in each group; None if the label is the root.
    """

    coarse: Sequence[CoarseCodes]
    trees: Sequence[ColumnTree]
    roots: np.ndarray | None

    @staticmethod
    def fit(
        cfg: MSTConfig,
        data: DatasetInfo,
        info: PartyInfo,
        noise: NoiseMultipliers,
        measure: Measure,
    ) -> TableModel:
        """Make the three measurements and fit the model to them."""
        return _Fit(cfg, data, info, noise, measure).model()

    def draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Encoded rows [rows, columns] for rows of these classes, by their position."""
        rows = np.empty((len(labels), len(self.coarse)))
        for group, tree in enumerate(self.trees):
            if self.roots is None:
                chosen, root = np.arange(len(labels)), labels
            else:
                chosen = np.flatnonzero(labels == group)
                root = draw_given(self.roots, labels[chosen], rng)
            drawn = tree.draw(root, rng)
            for column, codes in enumerate(self.coarse):
                fine = draw_given(codes.spread(group), drawn[column], rng)
                rows[chosen, column] = codes.fine.decode(fine, rng)
        return rows


class _Fit:
    """The measurements of one party and the model that they give."""

    def __init__(
        self,
        cfg: MSTConfig,
        data: DatasetInfo,
        info: PartyInfo,
        noise: NoiseMultipliers,
        measure: Measure,
    ) -> None:
        self.cfg, self.noise, self.measure = cfg, noise, measure
        self.classes = sorted(info.class_counts)
        self.class_counts = np.array([info.class_counts[c] for c in self.classes], float)
        self.fine = fine_codes(data, cfg.fine_bins)
        self.label = len(self.fine)
        # The tables of groups begin with the label; in one group the label is a column.
        self.prefix = (self.label,) if cfg.by_class else ()
        self.columns = range(self.label + (not cfg.by_class))
        self.group_totals = (
            self.class_counts if cfg.by_class else self.class_counts.sum(keepdims=True)
        )
        self.groups = len(self.group_totals)

    def model(self) -> TableModel:
        """The model; the measurements are charged in this order."""
        coarse, measured = self._columns()
        totals = [codes.sums(codes.counts) for codes in coarse]
        if not self.cfg.by_class:
            totals.append(self.class_counts[None])
        root = 0 if self.cfg.by_class else self.label
        edges = spanning_tree(self._scores(coarse, totals), root)
        noised = self._pairs(coarse, edges)
        if edges:
            totals = self._combined(measured, noised)
        trees = [
            ColumnTree(
                root,
                edges,
                {
                    (a, b): fit_table(table[group], totals[a][group], totals[b][group])
                    for (a, b), table in noised.items()
                },
            )
            for group in range(self.groups)
        ]
        return TableModel(coarse, trees, totals[root] if self.cfg.by_class else None)

    def _columns(self) -> tuple[list[CoarseCodes], list[list[Measured]]]:
        """The coarse codes of all columns but the label, and their noised counts per group."""
        mechanism = MarginalCounts(
            codes=lambda pixels, labels: self._codes(self.fine, pixels, labels),
            sizes=self._sizes(self.fine),
            tables=[(*self.prefix, column) for column in range(self.label)],
            noise_multiplier=self.noise.columns,
        )
        deviation = self.noise.columns * math.sqrt(self.label)
        few = self.cfg.few * deviation * math.sqrt(self.groups)
        enough = max(few, self.group_totals.sum() / self.cfg.bins)
        coarse, measured = [], []
        for codes, answer in zip(self.fine, self.measure(mechanism, call=0), strict=True):
            counts = answer.reshape(self.groups, codes.size)
            likely = np.stack(
                [project(c, n) for c, n in zip(counts, self.group_totals, strict=True)]
            )
            found = CoarseCodes(codes, merge(codes, likely.sum(0), few, enough), likely)
            coarse.append(found)
            variance = deviation**2 * found.members()
            measured.append([Measured(sums, variance) for sums in found.sums(counts)])
        return coarse, measured

    def _scores(self, coarse: list[CoarseCodes], totals: list[np.ndarray]) -> np.ndarray:
        """The noised scores of all pairs of columns [columns, columns]."""
        pairs = list(itertools.combinations(self.columns, 2))
        scores = np.zeros((len(self.columns), len(self.columns)))
        if not pairs:
            return scores
        independent = [
            np.einsum("ga,gb,g->gab", totals[a], totals[b], 1 / self.group_totals).ravel()
            for a, b in pairs
        ]
        mechanism = PairDistances(
            codes=lambda pixels, labels: self._codes(coarse, pixels, labels),
            sizes=self._sizes(coarse),
            tables=[(*self.prefix, *pair) for pair in pairs],
            expected=[torch.from_numpy(counts).round().long() for counts in independent],
            noise_multiplier=self.noise.choice,
        )
        (distances,) = self.measure(mechanism, call=1)
        deviation = self.noise.pairs * math.sqrt(len(self.columns) - 1)
        for (a, b), distance, counts in zip(pairs, distances, independent, strict=True):
            chance = math.sqrt(2 / math.pi) * (np.sqrt(counts).sum() + deviation * len(counts))
            scores[a, b] = scores[b, a] = distance - chance
        return scores

    def _pairs(self, coarse: list[CoarseCodes], edges: list[Edge]) -> dict[Edge, np.ndarray]:
        """The noised tables of every edge [groups, parent, child]."""
        if not edges:
            return {}
        sizes = self._sizes(coarse)
        mechanism = MarginalCounts(
            codes=lambda pixels, labels: self._codes(coarse, pixels, labels),
            sizes=sizes,
            tables=[(*self.prefix, *edge) for edge in edges],
            noise_multiplier=self.noise.pairs,
        )
        answers = self.measure(mechanism, call=2)
        return {
            (a, b): counts.reshape(self.groups, sizes[a], sizes[b])
            for (a, b), counts in zip(edges, answers, strict=True)
        }

    def _combined(
        self, measured: list[list[Measured]], noised: dict[Edge, np.ndarray]
    ) -> list[np.ndarray]:
        """The counts of every column per group by all tables that hold it."""
        variance = self.noise.pairs**2 * len(noised)
        totals = []
        for column in range(self.label):
            found = []
            for group, total in enumerate(self.group_totals):
                estimates = [measured[column][group]]
                for (a, b), tables in noised.items():
                    if column in (a, b):
                        axis = int(column == a)
                        sums = tables[group].sum(axis)
                        spread = np.full(len(sums), variance * tables[group].shape[axis])
                        estimates.append(Measured(sums, spread))
                found.append(combine(estimates, total))
            totals.append(np.stack(found))
        return totals if self.cfg.by_class else [*totals, self.class_counts[None]]

    def _codes(
        self, coders: Sequence[FineCodes | CoarseCodes], pixels: Tensor, labels: Tensor
    ) -> Tensor:
        """The codes of rows of a table, the label last: [n, columns]."""
        flat = pixels.flatten(1)
        columns = [codes.encode(flat[:, i]) for i, codes in enumerate(coders)]
        classes = torch.tensor(self.classes, device=labels.device)
        return torch.stack([*columns, torch.searchsorted(classes, labels)], dim=1)

    def _sizes(self, coders: Sequence[FineCodes | CoarseCodes]) -> list[int]:
        return [*(codes.size for codes in coders), len(self.classes)]
