"""Gaussian differential privacy: the exact formulas for mechanisms that add Gaussian noise.

A mechanism is mu-GDP if no test tells its outputs on neighbours apart better than N(0, 1) from
N(mu, 1); Gaussians of multipliers sigma_i on all records compose to mu^2 = sum of 1 / sigma_i^2.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr

from fedsynth.core.errors import UserError


def check_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1)."""
    if not 0 < delta < 1:
        raise UserError(f"delta must lie strictly between 0 and 1, not {delta!r}.")


def gdp_delta(mu: float, epsilon: float) -> float:
    """Delta of mu-GDP at epsilon: Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu)."""
    if mu <= 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    first = log_ndtr(mu / 2 - epsilon / mu)
    second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(-math.exp(first) * math.expm1(min(second - first, 0.0)))


def gdp_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon of mu-GDP at `delta`, rounded up by at most one part in 1e9."""
    check_delta(delta)
    if math.isinf(mu):
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * (math.sqrt(2 * math.log(1 / delta)) + 1)
    root = brentq(lambda e: gdp_delta(mu, e) - delta, 0.0, high, xtol=1e-12 * high)
    return float(root) * (1 + 1e-10) + 2e-12 * high


def gdp_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose GDP fits (epsilon, delta), rounded down by at most one part in 1e9."""
    check_delta(delta)
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be a positive finite number, not {epsilon!r}.")
    high = 1.0
    while gdp_delta(high, epsilon) < delta:
        high *= 2
    root = brentq(lambda m: gdp_delta(m, epsilon) - delta, high * 1e-12, high, xtol=1e-13 * high)
    return float(root) * (1 - 1e-10)
