"""The model of a table: its tree and tables against a naive program, and the rows drawn from it."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch

from fedsynth.core.device import CPU
from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.data import registry as datasets
from fedsynth.data.records import Records
from fedsynth.methods.marginals.config import MSTConfig, NoiseMultipliers
from fedsynth.methods.marginals.table_model import TableModel
from fedsynth.privacy.mechanisms.marginals import MarginalCounts, PairDistances
from fedsynth.privacy.noise import NoiseKey

INFO = datasets.find("made_table").info
IMAGES, LABELS = datasets.load("made_table", "train", None)
PART = Records(IMAGES[:600], LABELS[:600])
NOISE = NoiseMultipliers(1.0, 1.0, 0.5)
COLUMNS = len(INFO.columns)
Scores = dict[tuple[int, int], float]


class Exact:
    """Answers of mechanisms without noise, and the mechanisms that were asked."""

    def __init__(self, records: Records) -> None:
        self.records, self.asked = records, []

    def __call__(self, mechanism: MarginalCounts, call: int) -> list[np.ndarray]:
        assert call == len(self.asked)
        self.asked.append(mechanism)
        stream = NoiseKey.from_seed(0, "nobody").stream
        values = mechanism.evaluate(self.records, stream, torch.device(CPU)).values
        return [value.double().numpy() for value in values]


def facts(records: Records) -> PartyInfo:
    return PartyInfo(0, len(records.labels), Counter(records.labels.tolist()))


def fitted(
    records: Records = PART, data: DatasetInfo = INFO, **settings
) -> tuple[TableModel, Exact]:
    measure = Exact(records)
    cfg = MSTConfig(**settings)
    return TableModel.fit(cfg, data, facts(records), NOISE, measure), measure


def naive_rows(model: TableModel, records: Records) -> list[tuple[int, ...]]:
    """The coarse codes of each record and its class, one value at a time."""
    rows = []
    for row, label in zip(records.images.flatten(1), records.labels.tolist(), strict=True):
        codes = [int(c.encode(v[None])) for c, v in zip(model.coarse, row, strict=True)]
        rows.append((*codes, label))
    return rows


def naive_scores(groups: list[list[tuple[int, ...]]], sizes: list[int]) -> Scores:
    """L1 distances from independence in each group, less the part that chance and noise add."""
    deviation = NOISE.pairs * math.sqrt(len(sizes) - 1)
    scores = {}
    for a, b in itertools.combinations(range(len(sizes)), 2):
        score = 0.0
        for rows in groups:
            singles, pairs = (
                (Counter(row[c] for row in rows) for c in (a, b)),
                Counter((row[a], row[b]) for row in rows),
            )
            first, second = singles
            for i, j in itertools.product(range(sizes[a]), range(sizes[b])):
                independent = first[i] * second[j] / len(rows)
                score += abs(pairs[i, j] - round(independent))
                score -= math.sqrt(2 / math.pi) * (math.sqrt(independent) + deviation)
        scores[a, b] = score
    return scores


def naive_best(scores: Scores, columns: int) -> float:
    """The largest sum of scores of a spanning tree, by Kruskal's algorithm."""
    part, total = list(range(columns)), 0.0
    for (a, b), score in sorted(scores.items(), key=lambda item: -item[1]):
        if part[a] != part[b]:
            part = [part[a] if p == part[b] else p for p in part]
            total += score
    return total


@pytest.mark.parametrize("by_class", [False, True])
def test_without_noise_the_tree_is_the_best_and_its_tables_are_the_naive_counts(by_class):
    model, _ = fitted(by_class=by_class, bins=8)
    rows = naive_rows(model, PART)
    groups = [[r for r in rows if r[-1] == c] for c in (0, 1)] if by_class else [rows]
    sizes = [codes.size for codes in model.coarse] + [2] * (not by_class)
    scores = naive_scores(groups, sizes)
    edges = model.trees[0].edges
    found = sum(scores[min(edge), max(edge)] for edge in edges)
    assert found == pytest.approx(naive_best(scores, len(sizes)))
    assert len(model.trees) == len(groups)
    for tree, of_group in zip(model.trees, groups, strict=True):
        assert tree.edges == edges
        for (a, b), table in tree.tables.items():
            pairs = Counter((row[a], row[b]) for row in of_group)
            expected = [[pairs[i, j] for j in range(sizes[b])] for i in range(sizes[a])]
            np.testing.assert_allclose(table, expected, atol=0.02)


@pytest.mark.parametrize("by_class", [False, True])
def test_without_noise_drawn_columns_have_the_distribution_of_the_records(by_class):
    model, _ = fitted(by_class=by_class)
    labels = np.sort(PART.labels.numpy())
    rows = torch.from_numpy(model.draw(labels, np.random.default_rng(0))).float()
    for position, column in enumerate(INFO.columns):
        ours, theirs = rows[:, position], PART.images.flatten(1)[:, position]
        if column.categories:
            last = len(column.categories) - 1
            counts = [(v * last).round().long().bincount(minlength=9) for v in (ours, theirs)]
            assert (counts[0] - counts[1]).abs().max() <= 0.02 * len(labels)
        else:
            quantiles = torch.linspace(0.05, 0.95, 10)
            found, expected = ours.quantile(quantiles), theirs.quantile(quantiles)
            assert (found - expected).abs().max() < 0.03


def test_tables_by_class_keep_how_a_column_depends_on_the_class():
    model, _ = fitted(by_class=True)
    labels = np.sort(PART.labels.numpy())
    rows = model.draw(labels, np.random.default_rng(0))
    for label in (0, 1):
        ours = rows[labels == label].mean(0)
        theirs = PART.images.flatten(1)[PART.labels == label].mean(0).numpy()
        np.testing.assert_allclose(ours, theirs, atol=0.02)


def test_what_is_measured_is_every_column_every_pair_and_the_pairs_of_the_tree():
    model, measure = fitted()
    columns, choice, pairs = measure.asked
    assert [type(m) for m in measure.asked] == [MarginalCounts, PairDistances, MarginalCounts]
    assert list(columns.tables) == [(c,) for c in range(COLUMNS)]
    assert list(choice.tables) == list(itertools.combinations(range(COLUMNS + 1), 2))
    assert list(pairs.tables) == list(model.trees[0].edges)
    assert [m.noise_multiplier for m in measure.asked] == [1.0, 1.0, 0.5]
    _, by_class = fitted(by_class=True)
    assert {table[0] for m in by_class.asked for table in m.tables} == {COLUMNS}


@pytest.mark.parametrize("by_class", [False, True])
def test_one_column_and_one_class_are_a_table_too(by_class):
    one = DatasetInfo("one", (1, 1, 1), 2, (0.5,), (0.3,), columns=INFO.columns[:1])
    some = Records(PART.images[PART.labels == 1][:, :1], PART.labels[PART.labels == 1])
    model, _ = fitted(some, one, by_class=by_class)
    rows = model.draw(np.zeros(500, int), np.random.default_rng(0))
    assert rows.shape == (500, 1)
    assert abs(rows.mean() - float(some.images.mean())) < 0.02
