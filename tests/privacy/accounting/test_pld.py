"""Replacements in Poisson samples, against quadratures by hand in one and two dimensions."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from countings import DELTA, MNIST, sgd
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_accounting import naive_epsilon

from fedsynth.privacy.accounting.accountant import delta, epsilon
from fedsynth.privacy.accounting.events import composed, gaussian
from fedsynth.privacy.accounting.pld import SMALLEST_DELTA


@pytest.mark.parametrize(
    "run", [(0.02, 1.0, 200), (MNIST, 0.96571, 10_000), (0.5, 3.0, 20), (0.01, 0.6, 9)]
)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_epsilon_is_that_of_a_composition_by_hand(run, relation):
    q, sigma, steps = run
    kinds = ["replaced"] if relation == "replace_one" else ["removed", "added"]
    by_hand = max(naive_epsilon([(kind, q, sigma, steps)], DELTA) for kind in kinds)
    found = epsilon(sgd(*run), DELTA, relation=relation)
    assert by_hand * (1 - 1e-3) <= found <= by_hand * (1 + 3e-3)


@pytest.mark.parametrize("run", [(0.02, 1.0, 200), (0.3, 2.0, 30), (1e-3, 0.4, 1)])
def test_a_replacement_is_dp_accountings_and_below_group_privacy(run):
    """Twice the epsilon at (1 + exp(e)) delta(e) is what two neighbours in a row cost."""
    event = composed([sgd(*run), gaussian(9.0)])
    found = epsilon(event, DELTA, relation="replace_one")
    known = PLDAccountant(dp.NeighboringRelation.REPLACE_ONE, 1e-4)
    known.compose(event)
    assert found == pytest.approx(known.get_epsilon(DELTA), rel=3e-3)
    assert epsilon(event, DELTA) < found
    low, high = 0.0, 100.0
    for _ in range(50):
        half = (low + high) / 2
        below = (1 + math.exp(half)) * delta(event, half) <= DELTA
        low, high = (low, half) if below else (half, high)
    assert found <= 2 * high * (1 + 2e-3)


angles = st.floats(0.0, math.pi)
lengths = st.floats(0.0, 1.0)


@settings(max_examples=30, deadline=None)
@given(
    st.floats(0.01, 0.9), st.floats(0.5, 4.0), lengths, lengths, angles, st.floats(0.0, 2.0),
    st.floats(0.3, 1.0),
)  # fmt: skip
def test_opposite_records_dominate_all_replacements(  # noqa: PLR0917
    q, sigma, one, other, angle, e, thinner
):
    """The divergence of any two records in the plane, the second of a class that is sampled more
    rarely, is at most that of 1 and -1 on a line. Both by sums over a fine grid."""
    axis = np.linspace(-1 - 8 * sigma, 1 + 8 * sigma, 500)
    x, y = axis[:, None], axis[None, :]
    area = (axis[1] - axis[0]) ** 2 / (2 * math.pi * sigma**2)

    def bell(a, b):
        return area * np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * sigma**2))

    def divergence(p, r):
        return float(np.maximum(p - math.exp(e) * r, 0).sum())

    first = (1 - q) * bell(0, 0) + q * bell(one, 0)
    rarer = q * thinner
    moved = bell(other * math.cos(angle), other * math.sin(angle))
    second = (1 - rarer) * bell(0, 0) + rarer * moved
    worst = divergence(
        (1 - q) * bell(0, 0) + q * bell(1, 0), (1 - q) * bell(0, 0) + q * bell(-1, 0)
    )
    assert divergence(first, second) <= worst + 1e-9
    assert divergence(second, first) <= worst + 1e-9


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(
    ("run", "target"),
    [
        ((0.02, 1.0, 200), 1e-16),  # deltas below the mass that a PLD cuts off
        ((0.02, 1.0, 200), SMALLEST_DELTA / 2),
        ((0.001, 0.15, 14_000), 1e-9),  # losses beyond the largest float
        ((0.5, 0.003, 1000), 1e-5),  # hardly any noise
        ((0.5, 1e4, 1000), 1e-5),  # hardly anything but noise
        ((1.0, 0.01, 5), 1e-12),  # all records in every sample
        ((1 - 1e-9, 1.0, 5), 1e-5),
    ],
)
def test_no_epsilon_is_infinite_because_a_grid_ends(run, target, relation):
    found = epsilon(sgd(*run), target, relation=relation)
    assert math.isfinite(found)
    assert found <= epsilon(sgd(*run), target, "rdp", relation) * (1 + 1e-3) + 1e-3
    if target < 1e-9:
        assert found >= epsilon(sgd(*run), 1e-9, relation=relation)
