"""Renyi divergences against closed forms and numerical integration; the conversions by hand."""

from __future__ import annotations

import math

import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting.rdp import CONVENTIONS, Convention, renyi_epsilon

DELTA = 1e-5


def integrated(q: float, sigma: float, order: float) -> float:
    """The Renyi divergence of one Poisson-sampled Gaussian by adaptive integration."""

    def integrand(z: float) -> float:
        ratio = 1 - q + q * math.exp((2 * z - 1) / (2 * sigma**2))
        return math.exp(float(norm.logpdf(z, scale=sigma)) + order * math.log(ratio))

    moment, _ = quad(integrand, -20 * sigma, order + 20 * sigma, limit=400, epsabs=0, epsrel=1e-12)
    return math.log(moment) / (order - 1)


@pytest.mark.parametrize("order", [1.3, 2.0, 4.7, 8.0, 21.0])
@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.1), (0.5, 0.7), (0.2, 3.0)])
def test_divergences_are_the_integrals(q, sigma, order):
    steps, convention = 7, Convention((order,), improved=False)
    expected = steps * min(integrated(q, sigma, order), order / (2 * sigma**2))
    expected += math.log(1 / DELTA) / (order - 1)
    found = renyi_epsilon(0.0, {("poisson", q, sigma): steps}, DELTA, convention)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("order", [1.3, 2.0, 4.7, 12.0])
@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.1), (0.5, 0.7), (0.2, 3.0), (1.0, 0.9)])
def test_divergences_of_a_replacement_are_the_integrals(q, sigma, order):
    def integrand(z: float) -> float:
        def log_ratio(shift: float) -> float:
            return math.log(1 - q + q * math.exp((2 * z * shift - 1) / (2 * sigma**2)))

        exponent = order * log_ratio(1) + (1 - order) * log_ratio(-1)
        return math.exp(float(norm.logpdf(z, scale=sigma)) + exponent)

    ends = -1 - 12 * sigma, 2 * order - 1 + 12 * sigma
    moment, _ = quad(integrand, *ends, limit=400, epsabs=0, epsrel=1e-11)
    expected = 7 * min(math.log(moment) / (order - 1), 2 * order / sigma**2)
    expected += math.log(1 / DELTA) / (order - 1)
    convention, steps = Convention((order,), improved=False), {("poisson", q, sigma): 7}
    found = renyi_epsilon(0.0, {}, DELTA, convention, replaced=steps)
    assert found == pytest.approx(expected, rel=1e-9)
    assert found > renyi_epsilon(0.0, steps, DELTA, convention)


@pytest.mark.parametrize("name", [name for name in CONVENTIONS if name != "wor_bound"])
def test_a_sampling_rate_of_one_is_no_sampling(name):
    convention = CONVENTIONS[name]
    whole = renyi_epsilon(5 / 1.7**2, {}, DELTA, convention)
    sampled = renyi_epsilon(0.0, {("poisson", 1.0, 1.7): 5}, DELTA, convention)
    assert sampled == pytest.approx(whole, rel=1e-12)


def test_an_unsampled_gaussian_by_hand_in_both_conversions():
    order, mu2 = 12.0, 0.3
    classic = order * mu2 / 2 + math.log(1 / DELTA) / (order - 1)
    better = classic + math.log((order - 1) / order) - math.log(order) / (order - 1)
    assert renyi_epsilon(mu2, {}, DELTA, Convention((order,), improved=False)) == pytest.approx(
        classic
    )
    assert renyi_epsilon(mu2, {}, DELTA, Convention((order,))) == pytest.approx(better)


def test_sampling_never_costs_more_than_its_absence():
    everything = renyi_epsilon(9 / 0.8**2, {}, DELTA, CONVENTIONS["rdp"])
    for q in (1e-4, 0.3, 0.999):
        part = renyi_epsilon(0.0, {("poisson", q, 0.8): 9}, DELTA, CONVENTIONS["rdp"])
        assert part <= everything * (1 + 1e-12), q


def test_each_convention_refuses_the_sampling_it_does_not_bound():
    for name, convention in CONVENTIONS.items():
        bound = name == "wor_bound"
        assert convention.without_replacement == bound
        refused = "poisson" if bound else "without_replacement"
        with pytest.raises(UserError, match="wor_bound"):
            renyi_epsilon(0.0, {(refused, 0.1, 1.0): 1}, DELTA, convention)


def test_no_spending_is_epsilon_zero_where_the_convention_says_so():
    assert renyi_epsilon(0.0, {}, DELTA, CONVENTIONS["rdp"]) == 0
    assert renyi_epsilon(0.0, {}, DELTA, CONVENTIONS["rdp_classic"]) > 0
