"""Claims: the trade-off curve of an event, and the epsilon that observed rates prove."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedsynth.privacy.accounting.events import (
    composed,
    disclosed,
    gaussian,
    one_part,
    parallel,
    poisson,
    repeated,
)
from fedsynth.privacy.accounting.gdp import gdp_epsilon
from fedsynth.privacy.auditing.claims import Claim, with_noise

DELTA = 1e-5
SAMPLED = Claim(repeated(poisson(0.2, gaussian(0.8)), 3), DELTA)


@pytest.mark.parametrize(
    ("event", "square"),
    [
        (gaussian(2.0), 0.25),
        (repeated(gaussian(2.0), 8), 2.0),
        (parallel([gaussian(2.0), gaussian(1.0)]), 1.0),
        (composed([one_part("p", 0, 2, gaussian(1.0)), one_part("p", 1, 2, gaussian(0.5))]), 4.0),
        (composed([gaussian(1.0), poisson(1.0, gaussian(1.0))]), 2.0),
    ],
)
def test_the_mu_of_unsampled_gaussians_adds_up(event, square):
    assert Claim(event, DELTA).mu == pytest.approx(math.sqrt(square))


def test_sampled_events_and_disclosures_have_no_mu():
    assert SAMPLED.mu is None
    assert Claim(disclosed(), DELTA).mu is None
    assert Claim(disclosed(), DELTA).most_hits(1e-9) == 1.0


@given(st.floats(1e-6, 0.999))
@settings(max_examples=30, deadline=None)
def test_the_curve_of_a_gaussian_is_exact_and_its_inverse_fits(alarms):
    claim = Claim(gaussian(0.5), DELTA)
    hits = claim.most_hits(alarms)
    assert hits == pytest.approx(norm.sf(norm.isf(alarms) - 2.0))
    assert claim.least_alarms(hits) == pytest.approx(alarms, rel=1e-6)


@given(st.floats(1e-4, 0.9))
@settings(max_examples=20, deadline=None)
def test_the_curve_of_a_sampled_gaussian_lies_above_every_attack_and_close_to_the_best(alarms):
    """One use: the best attack is a threshold on the output, N(0, s) against the mixture."""
    q, sigma = 0.2, 0.8
    claim = Claim(poisson(q, gaussian(sigma)), DELTA)
    threshold = norm.isf(alarms)
    best = (1 - q) * alarms + q * norm.sf(threshold - 1 / sigma)
    assert best <= claim.most_hits(alarms) + 1e-9
    # The curve covers both directions, adding and removing, and lies on lines: not far above.
    assert claim.most_hits(alarms) <= 1.25 * best + 0.02
    assert claim.least_alarms(claim.most_hits(alarms)) <= alarms * (1 + 1e-9) + 1e-12


def test_rates_prove_an_epsilon_in_the_family_of_the_event():
    claim = Claim(gaussian(0.5), DELTA)
    hits, alarms = norm.sf(0.0), norm.sf(1.0)
    assert claim.epsilon_of(hits, alarms) == pytest.approx(gdp_epsilon(1.0, DELTA))
    assert claim.epsilon_of(alarms, hits) == 0.0
    weaker = with_noise(SAMPLED, 0.5)
    rates = weaker.most_hits(0.05), 0.05
    assert SAMPLED.broken_by(*rates)
    assert SAMPLED.epsilon < SAMPLED.epsilon_of(*rates) <= weaker.epsilon * 1.01
    assert SAMPLED.epsilon_of(SAMPLED.most_hits(0.05), 0.05) <= SAMPLED.epsilon * 1.001
