"""Bounds from one run with many canaries: they are true, and those of a curve are tight."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from fedsynth.privacy.accounting.events import gaussian, poisson
from fedsynth.privacy.accounting.gdp import gdp_epsilon
from fedsynth.privacy.auditing.claims import Claim
from fedsynth.privacy.auditing.one_run import (
    Guesses,
    contradicts,
    epsilon_bound,
    guesses,
    mu_bound,
)

DELTA = 1e-5


def gaussian_run(mu: float, canaries: int, guessed: int, seed: int) -> Guesses:
    rng = np.random.default_rng(seed)
    coins = rng.random(canaries) < 0.5
    return guesses(rng.normal(size=canaries) + mu * coins, coins.tolist(), guessed)


def test_the_highest_scores_are_guessed_in_and_the_lowest_out():
    found = guesses([5.0, 1.0, 3.0, -2.0], [True, True, False, False], 2)
    assert found == Guesses(4, 2, 2)
    assert guesses([5.0, -3.0, 3.0, -2.0], [True, True, False, False], 2).right == 1


def test_pure_dp_is_a_binomial_tail():
    """Of 100 guesses 85 right: by randomised response with epsilon 1.07 a chance of 5%."""
    bound = epsilon_bound(Guesses(100, 100, 85), 0.0)
    chance = 1 / (1 + math.exp(-bound))
    assert bound == pytest.approx(1.21, abs=0.05)
    rng = np.random.default_rng(0)
    assert (rng.binomial(100, chance, 40_000) >= 85).mean() == pytest.approx(0.05, abs=0.005)


def test_delta_makes_the_bound_smaller():
    found = Guesses(1000, 200, 190)
    bounds = [epsilon_bound(found, delta) for delta in (0.0, 1e-5, 1e-3)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < bounds[0]


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_bounds_exceed_the_truth_in_no_more_runs_than_they_say(mu):
    """Errors of 5% each: 14 or more of 100 runs have a probability below 5e-4; the seed is fixed"""
    runs = [gaussian_run(mu, 500, 200, seed) for seed in range(100)]
    assert sum(mu_bound(found) > mu for found in runs) <= 13
    assert not any(epsilon_bound(found, DELTA) > gdp_epsilon(mu, DELTA) for found in runs)


def test_the_curve_gives_a_tighter_bound_than_epsilon_and_delta():
    found = gaussian_run(2.0, 5000, 1000, 1)
    bound = mu_bound(found)
    assert 0.6 * 2.0 < bound <= 2.0
    assert epsilon_bound(found, DELTA) < 0.9 * gdp_epsilon(bound, DELTA)


def test_a_run_whose_noise_is_half_of_the_claim_contradicts_it():
    claim = Claim(gaussian(1.0), DELTA)
    assert not contradicts(gaussian_run(1.0, 2000, 500, 2), claim.least_alarms)
    assert contradicts(gaussian_run(2.0, 2000, 500, 2), claim.least_alarms)
    assert not contradicts(Guesses(100, 20, 0), claim.least_alarms)


def test_the_recursion_is_that_of_the_linear_programme():
    """All mass on "c of m right" needs a trade-off that a tiny case shows by hand.

    Two canaries, both guessed, both right with probability tau: r_2 = tau, h_2 = 0; so
    h_1 = F^-1(tau), r_1 = tau + h_1, h_0 = F^-1(r_1), and r_1 + h_0 must not exceed 1."""
    mu = 1.0
    level = 0.6
    h1 = ndtr(ndtri(level) - mu)
    h0 = max(h1, ndtr(ndtri(level + h1) - mu))
    expected = level + h1 + h0 > 1
    found = Guesses(2, 2, 2)

    def alarms_of(hits: float) -> float:
        return float(ndtr(ndtri(hits) - mu))

    assert contradicts(found, alarms_of, 1 - level) == expected
    assert contradicts(found, alarms_of, 0.05)
    assert not contradicts(found, alarms_of, 0.95)


def test_guesses_bound_a_sampled_event_by_its_own_curve():
    claim = Claim(poisson(0.5, gaussian(0.5)), DELTA)
    assert claim.epsilon_of_guesses(Guesses(500, 100, 55), 0.95) <= claim.epsilon
    assert claim.epsilon_of_guesses(Guesses(500, 300, 300), 0.95) > claim.epsilon
