"""Replacements in Poisson samples, against quadratures by hand in one and two dimensions."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from countings import DELTA, MNIST, sgd
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_accounting import IN_BALL, naive_epsilon, naive_event_epsilon

from fedsynth.privacy.accounting.accountant import delta, epsilon, renyi_divergence
from fedsynth.privacy.accounting.events import (
    composed,
    gaussian,
    gaussian_in_ball,
    one_part,
    parallel,
    poisson,
    repeated,
)
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


def in_the_plane(sigma, *records):
    """Per record (sampling rate, place in the plane), the density of its noised and sampled sum, by
    the cells of a fine grid."""
    axis = np.linspace(-1 - 8 * sigma, 1 + 8 * sigma, 500)
    x, y = axis[:, None], axis[None, :]
    area = (axis[1] - axis[0]) ** 2 / (2 * math.pi * sigma**2)

    def bell(a, b):
        return area * np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * sigma**2))

    return [(1 - q) * bell(0, 0) + q * bell(a, b) for q, a, b in records]


def divergence(e, p, r):
    """The mass by which `p` exceeds exp(e) times `r`."""
    return float(np.maximum(p - math.exp(e) * r, 0).sum())


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
    first, second = in_the_plane(
        sigma, (q, one, 0.0), (q * thinner, other * math.cos(angle), other * math.sin(angle))
    )
    worst = divergence(e, *in_the_plane(sigma, (q, 1.0, 0.0), (q, -1.0, 0.0)))
    assert divergence(e, first, second) <= worst + 1e-9
    assert divergence(e, second, first) <= worst + 1e-9


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


# Values in a ball: a replacement moves them no further than a removal


@pytest.mark.parametrize(
    "run", [(0.02, 1.0, 200), (MNIST, 0.96571, 10_000), (0.5, 3.0, 20), (0.01, 0.6, 9)]
)
def test_a_replacement_within_a_ball_is_that_of_a_composition_by_hand(run):
    q, sigma, steps = run
    event = repeated(poisson(q, gaussian_in_ball(sigma)), steps)
    by_hand = naive_epsilon([(IN_BALL, q, sigma, steps)], DELTA)
    found = epsilon(event, DELTA, relation="replace_one")
    assert by_hand * (1 - 1e-3) <= found <= by_hand * (1 + 3e-3)
    assert epsilon(event, DELTA) == epsilon(sgd(*run), DELTA)  # add_remove is as it was
    assert epsilon(event, DELTA) * (1 - 1e-3) <= found
    assert found < epsilon(sgd(*run), DELTA, relation="replace_one")
    rdp = epsilon(event, DELTA, "rdp", "replace_one")
    assert found * (1 - 1e-3) <= rdp <= epsilon(sgd(*run), DELTA, "rdp", "replace_one")


@settings(max_examples=30, deadline=None)
@given(
    st.floats(0.01, 0.9), st.floats(0.5, 4.0), lengths, lengths, st.floats(0.0, math.pi / 3),
    st.floats(-2.0, 2.0), st.floats(0.3, 1.0),
)  # fmt: skip
def test_no_pair_of_records_in_a_ball_exceeds_the_accountants_delta(  # noqa: PLR0917
    q, sigma, one, other, angle, e, thinner
):
    """An attacker's choice: the results with each record and with neither anywhere in a ball of
    diameter 1. Integrated in the plane, against delta at positive epsilons and against the mirrored
    profile at negative ones."""
    first, second = in_the_plane(
        sigma, (q, one, 0.0), (q * thinner, other * math.cos(angle), other * math.sin(angle))
    )
    event = poisson(q, gaussian_in_ball(sigma))
    worst = delta(event, abs(e), "replace_one")
    if e < 0:
        worst = -math.expm1(e) + math.exp(e) * worst
    for pair in ((first, second), (second, first)):
        assert divergence(e, *pair) <= worst + 1e-6


def test_an_attacker_who_adds_and_removes_in_turn_stays_below_the_bound():
    """The function of the sample may make one step a removal and the next one an addition. Neither
    all removals nor all additions bound that; the pair of a ball does, at every delta."""
    q, sigma = 0.3, 0.8
    event = repeated(poisson(q, gaussian_in_ball(sigma)), 6)
    for target in (1e-2, 1e-4, 1e-6):
        found = epsilon(event, target, relation="replace_one")
        for removals in range(7):
            steps = [("removed", q, sigma, removals), ("added", q, sigma, 6 - removals)]
            mixed = naive_epsilon([step for step in steps if step[3]], target)
            assert mixed <= found * (1 + 1e-3)


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.0), (0.001, 0.7), (0.02, 0.8)])
def test_two_records_at_the_corners_of_a_triangle_cost_more_than_a_removal(q, sigma):
    """Three results at mutual distance 1. In composition, which the divergence of order 2 adds up,
    this attacker gains more than by a removal, and less than the pair of a ball allows."""
    axis = np.linspace(-1 - 9 * sigma, 2 + 9 * sigma, 1200)
    x, y = axis[:, None], axis[None, :]
    area = (axis[1] - axis[0]) ** 2 / (2 * math.pi * sigma**2)

    def mixture(a, b):
        def bell(u, v):
            return area * np.exp(-((x - u) ** 2 + (y - v) ** 2) / (2 * sigma**2))

        return (1 - q) * bell(0, 0) + q * bell(a, b)

    first, second = mixture(1, 0), mixture(0.5, math.sqrt(0.75))
    attack = math.log(float((first**2 / second).sum()))
    removal = renyi_divergence(poisson(q, gaussian(sigma)), 2.0)
    bound = renyi_divergence(poisson(q, gaussian_in_ball(sigma)), 2.0, "replace_one")
    opposite = renyi_divergence(poisson(q, gaussian(sigma)), 2.0, "replace_one")
    assert removal < attack <= bound < opposite


def test_without_sampling_a_replacement_in_a_ball_costs_what_a_removal_does():
    for event in (gaussian_in_ball(2.0), poisson(1.0, gaussian_in_ball(2.0))):
        removal = epsilon(gaussian(2.0), DELTA)
        assert epsilon(event, DELTA, relation="replace_one") == pytest.approx(removal, rel=1e-12)
        assert renyi_divergence(event, 3.0, "replace_one") == pytest.approx(3 / 8, rel=1e-12)


@pytest.mark.parametrize("order", [1.5, 2.0, 4.5, 12.0])
@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.0), (0.2, 2.0), (0.9, 3.0), (0.999999, 1.5)])
def test_the_divergence_within_a_ball_is_the_integral_over_its_pair(q, sigma, order):
    """The half-line that a removal makes likelier, taken twice, and the rest without a loss."""
    event = poisson(q, gaussian_in_ball(sigma))
    found = renyi_divergence(event, order, "replace_one")
    z = np.linspace(-1 - 14 * sigma, order + 1 + 14 * sigma, 400_001)
    rest = np.exp(-(z**2) / (2 * sigma**2)) * (z[1] - z[0]) / (sigma * math.sqrt(2 * math.pi))
    ratio = 1 - q + q * np.exp((2 * z - 1) / (2 * sigma**2))
    up = ratio > 1
    moment = float((rest[up] * (ratio[up] ** order + ratio[up] ** (1 - order))).sum())
    moment += 1 - float((rest[up] * (1 + ratio[up])).sum())
    assert found == pytest.approx(math.log(moment) / (order - 1), rel=1e-4)
    assert found <= order / (2 * sigma**2) * (1 + 1e-9)
    assert found >= renyi_divergence(poisson(q, gaussian(sigma)), order) * (1 - 1e-9)


def test_a_record_that_moves_between_balls_changes_both():
    """The only kind of event for which equal parts cost more than one part."""
    one = [one_part("cut", part, 5, gaussian_in_ball(3.0)) for part in range(2)]
    both = gaussian_epsilon(math.sqrt(2) / 3)
    for event in (composed(one), parallel([gaussian_in_ball(3.0)] * 2)):
        assert epsilon(event, DELTA, relation="replace_one") == pytest.approx(both, rel=1e-9)
        assert epsilon(event, DELTA) == pytest.approx(gaussian_epsilon(1 / 3), rel=1e-9)
    alone = epsilon(one[0], DELTA, relation="replace_one")
    assert alone == pytest.approx(gaussian_epsilon(1 / 3), rel=1e-9)


def gaussian_epsilon(mu):
    return epsilon(gaussian(1 / mu), DELTA)


PARTS = [
    [one_part("cut", 0, 3, repeated(poisson(0.1, gaussian_in_ball(1.5)), 4)),
     one_part("cut", 1, 3, repeated(poisson(0.1, gaussian_in_ball(1.5)), 4))],
    [one_part("cut", 0, 3, repeated(gaussian_in_ball(2.0), 2)),
     one_part("cut", 1, 3, gaussian_in_ball(2.0)), poisson(0.2, gaussian(2.0))],
    [one_part("cut", 0, 3, gaussian_in_ball(2.0)), one_part("cut", 1, 3, gaussian(2.5)),
     one_part("cut", 2, 3, gaussian_in_ball(4.0))],
    [parallel([gaussian_in_ball(2.0), gaussian_in_ball(2.0), gaussian(5.0)]), gaussian(6.0)],
]  # fmt: skip


@pytest.mark.parametrize("events", PARTS)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_balls_and_sums_on_parts_are_counted_as_by_hand(events, relation):
    event = composed(events)
    by_hand = naive_event_epsilon(event, DELTA, relation)
    found = epsilon(event, DELTA, relation=relation)
    assert by_hand * (1 - 2e-3) <= found <= by_hand * (1 + 4e-3)
