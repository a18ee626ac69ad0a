"""Trees of columns: against searches over all trees, all cells and all counts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedsynth.methods.marginals.tree import (
    ColumnTree,
    Measured,
    combine,
    draw_given,
    fit_table,
    project,
    spanning_tree,
)


def is_tree(edges: tuple[tuple[int, int], ...], columns: int) -> bool:
    part = list(range(columns))
    for a, b in edges:
        if part[a] == part[b]:
            return False
        part = [part[a] if p == part[b] else p for p in part]
    return True


@pytest.mark.parametrize("seed", range(5))
def test_no_other_tree_has_a_larger_score(seed):
    rng, columns = np.random.default_rng(seed), 5
    scores = rng.normal(size=(columns, columns))
    scores += scores.T
    edges = spanning_tree(scores, root=seed)
    reached = {seed}
    for parent, child in edges:  # from the root outwards
        assert parent in reached
        assert child not in reached
        reached.add(child)
    pairs = list(itertools.combinations(range(columns), 2))
    trees = (t for t in itertools.combinations(pairs, columns - 1) if is_tree(t, columns))
    best = max(sum(scores[edge] for edge in tree) for tree in trees)
    assert sum(scores[edge] for edge in edges) == pytest.approx(best)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=6), st.floats(0.1, 300))
def test_the_projection_is_the_nearest_of_its_kind(counts, total):
    counts = np.array(counts)
    found = project(counts, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total)
    start = np.full(len(counts), total / len(counts))
    constraint = {"type": "eq", "fun": lambda x: x.sum() - total}
    searched = minimize(
        lambda x: ((x - counts) ** 2).sum(),
        start,
        bounds=[(0, None)] * len(counts),
        constraints=constraint,
    )
    distance = ((found - counts) ** 2).sum()
    assert distance <= ((searched.x - counts) ** 2).sum() + 1e-4 * (1 + abs(distance))


def test_a_fitted_table_has_the_sums_and_stays_near_the_noised_counts():
    rng = np.random.default_rng(0)
    exact = rng.integers(0, 400, (4, 5)).astype(float)
    exact[1, 2] = 0
    rows, columns = exact.sum(1), exact.sum(0)
    np.testing.assert_allclose(fit_table(exact, rows, columns), exact, atol=1e-3)
    noised = exact + rng.normal(size=exact.shape) * 30
    table = fit_table(noised, rows, columns)
    np.testing.assert_allclose(table.sum(1), rows, rtol=1e-6)
    np.testing.assert_allclose(table.sum(0), columns, rtol=1e-6)
    assert np.abs(table - exact).mean() < np.abs(noised - exact).mean()


def test_a_fitted_table_of_empty_rows_and_nothing_but_noise_is_finite():
    noised = np.array([[-5.0, -6], [-7, -8]])
    table = fit_table(noised, np.array([0.0, 10]), np.array([4.0, 6]))
    np.testing.assert_allclose(table.sum(0), [4, 6], rtol=1e-6)
    np.testing.assert_allclose(table.sum(1), [0, 10], atol=1e-6)


def test_estimates_count_by_their_precision():
    estimates = [
        Measured(np.array([10.0, 30]), np.array([1.0, 1])),
        Measured(np.array([20.0, 20]), np.array([4.0, 4])),
    ]
    np.testing.assert_allclose(combine(estimates, 40), [12, 28])


def test_rows_have_the_distribution_of_the_tree():
    """Every cell of the joint distribution of four columns, against the product of conditionals."""
    rng = np.random.default_rng(0)
    first, second, third = (rng.integers(1, 60, shape) for shape in ((2, 3), (3, 2), (3, 4)))
    root = np.array([0.3, 0.7])
    edges = [(3, 0), (0, 1), (0, 2)]  # column 3 is the root
    tables = dict(zip(edges, (first, second, third), strict=True))
    rows = 200_000
    codes = ColumnTree(3, edges, tables).draw(
        np.repeat([0, 1], (root * rows).round().astype(int)), rng
    )

    def given_parent(table: np.ndarray, parent: int, child: int) -> float:
        return table[parent, child] / table[parent].sum()

    for d, a, b, c in itertools.product(range(2), range(3), range(2), range(4)):
        expected = root[d] * given_parent(first, d, a)
        expected *= given_parent(second, a, b) * given_parent(third, a, c)
        cell = (codes[3] == d) & (codes[0] == a) & (codes[1] == b) & (codes[2] == c)
        assert cell.mean() == pytest.approx(expected, abs=4e-3)


def test_drawn_counts_differ_from_their_expectation_by_less_than_one():
    rng = np.random.default_rng(1)
    table = np.array([[1.0, 2, 4], [0, 0, 5], [0, 0, 0]])
    given_codes = rng.permutation(np.repeat([0, 1, 2], [100, 37, 16]))
    drawn = draw_given(table, given_codes, rng)
    for code, weights in enumerate([table[0], table[1], table.sum(0)]):
        counts = np.bincount(drawn[given_codes == code], minlength=3)
        expected = weights / weights.sum() * counts.sum()
        assert np.abs(counts - expected).max() < 1
    assert len(draw_given(table, np.zeros(0, int), rng)) == 0
