"""The data-dependent bound of a benchmark against integrals, and the marks of its output."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "data_dependent_bound.py"
_spec = importlib.util.spec_from_file_location("data_dependent_bound", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
bound = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bound)


def probabilities(counts: np.ndarray, sigma: float) -> np.ndarray:
    """Of each count to be the largest after noise, by an integral over the winner's value."""
    x = np.linspace(counts.min() - 12 * sigma, counts.max() + 12 * sigma, 20_001)
    below = norm.cdf((x[:, None] - counts) / sigma)
    density = norm.pdf((x[:, None] - counts) / sigma) / sigma
    others = [np.delete(below, i, 1).prod(1) for i in range(len(counts))]
    return np.array([np.trapezoid(density[:, i] * o, x) for i, o in enumerate(others)])


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    """The Renyi divergence of two distributions over few outcomes."""
    likely = p > 1e-300
    terms = order * np.log(p[likely]) + (1 - order) * np.log(q[likely])
    return float(np.logaddexp.reduce(terms)) / (order - 1)


def neighbours(counts: np.ndarray) -> list[np.ndarray]:
    """Counts in which one teacher votes otherwise."""
    found = []
    for source in np.flatnonzero(counts):
        for target in range(len(counts)):
            moved = counts.copy()
            moved[source] -= 1
            moved[target] += 1
            if source != target:
                found.append(moved)
    return found


@given(
    st.lists(st.integers(0, 30), min_size=2, max_size=4).filter(any),
    st.floats(1.5, 12.0),
    st.sampled_from([1.1, 1.5, 2.0, 4.0, 9.0, 25.0]),
)
@example([20, 6, 0], 3.0, 2.0)  # where the bound applies
@settings(max_examples=60, deadline=None)
def test_no_neighbour_diverges_further_than_the_bound(counts, sigma, order):
    votes = np.array(counts, float)
    here = probabilities(votes, sigma)
    log_q = bound.log_of_other_outcomes(votes, sigma)
    assert math.exp(log_q) >= 1 - here[votes.argmax()] - 1e-9
    (most,) = bound.data_dependent_rdp(log_q, 1 / sigma**2, np.array([order]))
    assert most <= order / sigma**2 * (1 + 1e-12)
    for other in neighbours(votes):
        assert divergence(here, probabilities(other, sigma), order) <= most + 1e-9


def test_it_is_the_formula_of_the_theorem_where_that_applies():
    """In plain arithmetic, as it is printed, with the two higher orders of proposition 10."""
    sigma, log_q, order = 10.0, -8.0, 3.0
    q, per_order = math.exp(log_q), 1 / sigma**2
    second = math.sqrt(-log_q) * sigma
    first = second + 1
    a = (1 - q) / (1 - (q * math.exp(per_order * second)) ** ((second - 1) / second))
    b = math.exp(per_order * first) / q ** (1 / (first - 1))
    printed = math.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1)
    (found,) = bound.data_dependent_rdp(log_q, per_order, np.array([order]))
    assert found == pytest.approx(printed, rel=1e-6)
    assert found < 0.1 * per_order * order


def test_the_value_is_another_one_on_neighbouring_data():
    """So it is private itself: here one vote makes it 1.5 times as large."""
    votes = np.array([95.0, 3.0, 2.0])
    values = [
        bound.data_dependent_rdp(bound.log_of_other_outcomes(v, 10.0), 0.01, np.array([2.0]))[0]
        for v in (votes, bound.one_moved(votes))
    ]
    assert values[1] > 1.5 * values[0] > 0


@pytest.mark.parametrize(("entries", "sigma"), [(200, 5000), (300, 800), (350, 900), (350, 1000)])
def test_at_the_published_settings_the_bound_does_not_apply(entries, sigma):
    """With 784 pixels q is at its cap, so that the program prints the bound for any votes."""
    per_order = 2 * entries / sigma**2
    nearly_all = np.zeros(784)
    nearly_all[:entries] = 4000.0  # unanimous teachers
    log_q = bound.log_of_other_outcomes(nearly_all, sigma)
    assert log_q == math.log1p(-1 / 784)
    assert (bound.data_dependent_rdp(log_q, per_order) == per_order * bound.ORDERS).all()


def test_the_published_epsilon_comes_from_the_bound_for_any_votes():
    per_order = 2 * 200 / 5000**2
    assert bound.classic_epsilon(1290 * per_order * bound.ORDERS) == pytest.approx(
        0.99571, abs=5e-6
    )


def test_for_a_vector_the_value_of_the_program_is_no_bound():
    """One teacher turns its vote on a pixel at the threshold; another pixel is far above it."""
    sigma, threshold, order = 20.0, 100.0, 2.0
    votes, other = np.array([400.0, 100.0, 0.0]), np.array([400.0, 98.0, 0.0])

    def outcomes(count: float) -> np.ndarray:
        up, down = norm.sf((threshold - count) / sigma), norm.cdf((-threshold - count) / sigma)
        return np.array([up, 1 - up - down, down])

    true = sum(
        divergence(outcomes(a), outcomes(b), order) for a, b in zip(votes, other, strict=True)
    )
    at_order = list(bound.ORDERS).index(order)
    assert bound.program_rdp(votes, sigma, entries=1)[at_order] < 1e-6 * true
    assert true <= 2 * order / sigma**2  # the bound for any votes
    honest = bound.log_of_other_vectors(votes, sigma, threshold)
    stands = 1 - math.prod(float(outcomes(count).max()) for count in votes)
    assert math.exp(honest) == pytest.approx(stands, rel=1e-9)
    assert bound.data_dependent_rdp(honest, 2 / sigma**2)[at_order] >= true


@pytest.mark.parametrize("method", ["g_pate", "datalens"])
def test_each_value_from_votes_is_marked_as_private(method, monkeypatch, capsys):
    words = f"--method {method} --teachers 16 --rounds 1".split()
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    bound.main()
    head, *rest = capsys.readouterr().out.splitlines()
    assert method in head
    marked = [line.endswith(f"[{bound.PRIVATE}]") for line in rest]
    assert [line.startswith("whatever the votes:") for line in rest] == [not m for m in marked]
    assert sum(marked) >= 2


def test_the_program_itself_cannot_compute_it():
    names = ("data_dependent", "log_of_other")
    for path in (ROOT / "fedsynth").rglob("*.py"):
        assert not any(name in path.read_text() for name in names), path
