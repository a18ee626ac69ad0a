"""Exact Gaussian privacy against an integral, and what was published."""

import numpy as np
import pytest
from countings import DELTA, printed
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedsynth.privacy.accounting.gdp import gdp_delta, gdp_epsilon, gdp_mu


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-3, 50.0), st.floats(0.0, 60.0))
def test_gaussian_delta_is_the_hockey_stick_divergence(mu, eps):
    """Integrate max(0, p - e^eps q) for N(mu, 1) against N(0, 1)."""
    x = np.linspace(mu - 12, mu + 12, 400_001)
    p = stats.norm.pdf(x - mu)
    found = np.trapezoid(p * np.maximum(0.0, -np.expm1(eps - (mu * x - mu * mu / 2))), x)
    assert gdp_delta(mu, eps) == pytest.approx(found, rel=1e-4, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-3, 40.0), st.floats(1e-9, 0.4))
def test_gaussian_epsilon_and_mu_err_on_the_safe_side(mu, d):
    eps = gdp_epsilon(mu, d)
    assert gdp_delta(mu, eps) <= d
    if eps > 1e-6:
        assert gdp_delta(mu, eps * (1 - 1e-7)) > d
        assert gdp_mu(eps, d) == pytest.approx(mu, rel=1e-6)
        assert gdp_delta(gdp_mu(eps, d), eps) <= d


def test_published_mu():
    """sketch_teach.md: the budgets in Gaussian DP."""
    assert gdp_mu(1, DELTA) == printed("0.26805")
    assert gdp_mu(10, DELTA) == printed("2.00045")
