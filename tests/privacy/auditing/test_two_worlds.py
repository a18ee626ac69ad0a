"""The auditor's bounds: they are true, and tight enough to be of use."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from fedsynth.privacy.accounting.gdp import gdp_epsilon
from fedsynth.privacy.auditing.two_worlds import _bounds, audit

# The bounds


@given(st.integers(0, 30), st.integers(0, 30), st.floats(0.01, 0.2))
@settings(max_examples=25, deadline=None)
def test_the_rates_are_bounded_as_clopper_and_pearson_say(
    hits: int, alarms: int, alpha: float
) -> None:
    without = np.arange(30) < alarms
    with_canary = np.arange(30) < hits
    least, most = _bounds(without.astype(float), with_canary.astype(float), 0.5, alpha)
    usual = [binomtest(k, 30).proportion_ci(1 - alpha, "exact") for k in (hits, alarms)]
    assert least == pytest.approx(usual[0].low, abs=1e-9)
    assert most == pytest.approx(usual[1].high, abs=1e-9)


def test_randomised_response_is_found_out_and_not_slandered() -> None:
    rng, epsilon = np.random.default_rng(1), 1.5
    honest = math.exp(epsilon) / (1 + math.exp(epsilon))
    no, yes = ((rng.random(20_000) < share).astype(float) for share in (1 - honest, honest))
    found = audit(no, yes, delta=1e-5)
    assert epsilon - 0.15 < found.epsilon <= epsilon


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_a_gaussian_mechanism_is_bounded_tightly_from_below(mu: float) -> None:
    rng = np.random.default_rng(2)
    found = audit(rng.normal(size=20_000), rng.normal(mu, size=20_000), delta=1e-5)
    assert 0.85 * mu < found.mu <= mu
    assert found.epsilon <= found.epsilon_gdp == pytest.approx(gdp_epsilon(found.mu, 1e-5))
    assert found.epsilon_gdp <= gdp_epsilon(mu, 1e-5)


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_worlds_that_are_alike_prove_little(seed: int) -> None:
    rng = np.random.default_rng(seed)
    no, yes = rng.normal(size=(2, 100))
    found = audit(no, yes, delta=1e-5, confidence=1 - 1e-6)
    assert found.epsilon == found.mu == found.epsilon_gdp == 0.0


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(ValueError, match="20 finite scores"):
        audit([0.0] * 19, [1.0] * 19, 1e-5)
    with pytest.raises(ValueError, match="20 finite scores"):
        audit([0.0] * 30, [math.nan] * 30, 1e-5)
