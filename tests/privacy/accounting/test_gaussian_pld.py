"""Distributions on whole arrays against dp-accounting's own, step by step."""

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as distributions
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import gaussian, poisson, repeated
from fedsynth.privacy.accounting.gaussian_pld import pld_epsilon, sampled_gaussian, self_composed
from fedsynth.privacy.accounting.pld import library_epsilon
from fedsynth.privacy.accounting.spending import key, spendings

RELATIONS = {
    "add_remove": dp.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": dp.NeighboringRelation.REPLACE_ONE,
}
RUNS = [  # rate, sigma, interval, times
    (0.02, 1.0, 2.0**-9, 200),
    (0.3, 2.0, 2.0**-8, 30),
    (1e-3, 0.4, 2.0**-7, 1),
    (0.01, 0.6, 2.0**-8, 1000),
    (0.004, 3.0, 2.0**-13, 20_000),
    (0.5, 0.05, 0.5, 9),
    (1 - 1e-9, 1.0, 2.0**-7, 5),
    (1.0, 4.0, 2.0**-7, 5),
]


def both(q, sigma, interval, relation):
    """Our distribution of one mechanism, and dp-accounting's."""
    known = distributions.from_gaussian_mechanism(
        standard_deviation=sigma,
        value_discretization_interval=interval,
        sampling_prob=q,
        neighboring_relation=RELATIONS[relation],
    )
    return sampled_gaussian(q, sigma, interval, RELATIONS[relation]), known


@pytest.mark.parametrize("relation", sorted(RELATIONS))
@pytest.mark.parametrize("run", RUNS)
def test_the_masses_of_one_mechanism_are_those_of_dp_accounting(run, relation):
    ours, known = both(*run[:3], relation)
    for side in ("_pmf_remove", "_pmf_add"):
        mine, theirs = (getattr(pld, side).to_dense_pmf() for pld in (ours, known))
        assert mine._infinity_mass == pytest.approx(theirs._infinity_mass, rel=1e-9, abs=1e-30)
        shift = theirs._lower_loss - mine._lower_loss  # a grid may be a point longer
        at = np.arange(max(0, shift), max(0, shift) + min(mine.size, theirs.size) - abs(shift))
        assert np.allclose(mine._probs[at], theirs._probs[at - shift], rtol=0, atol=4e-15 / run[2])
        assert len(at) >= theirs.size - 2


@pytest.mark.parametrize("relation", sorted(RELATIONS))
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_the_epsilon_of_a_composition_is_that_of_dp_accounting(run, relation, delta):
    ours, known = both(*run[:3], relation)
    found = pld_epsilon(self_composed(ours, run[3]), delta)
    expected = known.self_compose(run[3]).get_epsilon_for_delta(delta)
    rounding = 1e-7 if delta > 1e-6 else 1e-4  # of Fourier transforms, relative to delta
    assert found == pytest.approx(expected, rel=rounding, abs=1e-12)


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9, 1e-16])
@pytest.mark.parametrize("run", RUNS)
def test_the_epsilon_of_a_distribution_is_the_one_found_number_by_number(run, delta):
    _, known = both(*run[:3], "add_remove")
    known = known.self_compose(run[3])
    assert pld_epsilon(known, delta) == pytest.approx(known.get_epsilon_for_delta(delta), rel=1e-12)


@pytest.mark.parametrize("times", [1, 2, 7, 1000])
def test_a_composition_keeps_all_mass(times):
    one = sampled_gaussian(0.02, 0.8, 2.0**-8, RELATIONS["add_remove"])
    pmf = self_composed(one, times)._pmf_remove
    assert pmf._probs.sum() + pmf._infinity_mass == pytest.approx(1.0, abs=1e-9)


@settings(max_examples=10, deadline=None)
@given(
    q=st.floats(1e-5, 1.0),
    sigma=st.floats(0.4, 30.0),
    times=st.integers(1, 3000),
    delta=st.sampled_from([1e-3, 1e-5, 1e-7]),
)
def test_any_epsilon_is_that_of_dp_accounting_on_the_same_grid(q, sigma, times, delta):
    event = repeated(poisson(q, gaussian(sigma)), times)
    (way,) = spendings(key(event))
    if not way.sampled:
        return
    expected = library_epsilon(way, delta)
    assert epsilon(event, delta) == pytest.approx(expected, rel=1e-5, abs=1e-9)
