"""Events: what is written is what is read, and one spending is found inside another."""

import json
import math
from collections import Counter

import dp_accounting as dp
import pytest
from dp_accounting import DpEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting.events import (
    by_part,
    composed,
    describe,
    disclosed,
    flatten,
    from_json,
    from_text,
    gaussian,
    gaussian_of_exchange,
    nothing,
    one_part,
    parallel,
    poisson,
    repeated,
    to_json,
    to_text,
    unflatten,
    without_noise,
    without_replacement,
)

finite = st.floats(0.0, 1e6, allow_nan=False)
leaves = st.one_of(
    st.builds(gaussian, finite),
    st.builds(gaussian_of_exchange, finite),
    st.just(disclosed()),
    st.just(nothing()),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(poisson, st.floats(0.0, 1.0), inner),
        st.builds(repeated, inner, st.integers(0, 5)),
        st.builds(lambda n, e: without_replacement(n + 3, 3, e), st.integers(0, 9), inner),
        st.builds(composed, st.lists(inner, max_size=3)),
        st.builds(parallel, st.lists(inner, max_size=3)),
        st.builds(lambda k, e: one_part("halves", k, 2, e), st.integers(0, 1), inner),
    ),
    max_leaves=8,
)


@settings(max_examples=100)
@given(trees)
def test_json_gives_the_same_event_back(event):
    assert from_json(json.loads(json.dumps(to_json(event)))) == event
    assert from_text(to_text(event)) == event


def test_floats_survive_to_the_last_bit():
    sigma = math.nextafter(0.1, 1.0)
    assert from_text(to_text(gaussian(sigma))).noise_multiplier == sigma


@settings(max_examples=100)
@given(trees, trees, st.integers(0, 4))
def test_flatten_counts_and_forgets_grouping(a, b, n):
    both = flatten(composed([a, b]))
    assert both == flatten(a) + flatten(b) == flatten(composed([b, composed([a])]))
    assert flatten(repeated(a, n)) == flatten(composed([a] * n))
    assert flatten(unflatten(both)) == both
    assert to_text(unflatten(both)) == to_text(unflatten(flatten(composed([b, a]))))
    assert all(count > 0 for count in both.values())


def contained(part: DpEvent, whole: DpEvent) -> bool:
    """The comparison by which a ledger accepts less than an affordable event."""
    return flatten(part) <= flatten(whole)


@settings(max_examples=60)
@given(st.lists(leaves, min_size=1, max_size=6), st.data())
def test_a_part_is_contained_and_one_more_is_not(events, data):
    whole = composed(events)
    part = data.draw(st.lists(st.sampled_from(range(len(events))), unique=True))
    assert contained(composed([events[i] for i in part]), whole)
    extra = data.draw(st.builds(gaussian, finite))
    assert not contained(composed([*events, extra]), whole)
    assert contained(nothing(), whole)


def test_containment_looks_at_rate_noise_and_number():
    plan = composed([repeated(poisson(0.02, gaussian(0.8)), 300), gaussian(5.0)])
    assert contained(repeated(poisson(0.02, gaussian(0.8)), 300), plan)
    assert not contained(repeated(poisson(0.02, gaussian(0.8)), 301), plan)
    assert not contained(poisson(0.021, gaussian(0.8)), plan)
    assert not contained(poisson(0.02, gaussian(0.79)), plan)
    assert not contained(gaussian(0.8), plan)
    assert not contained(disclosed(), plan)


def test_steps_of_a_partition_are_a_partition_of_steps():
    a, b = poisson(0.1, gaussian(1.0)), poisson(0.2, gaussian(1.0))
    steps = repeated(parallel([a, b]), 300)
    assert flatten(steps) == flatten(parallel([repeated(a, 300), repeated(b, 300)]))
    assert flatten(steps) != flatten(parallel([repeated(b, 300), repeated(a, 300)]))
    assert flatten(parallel([a, a])) == flatten(a)
    assert flatten(parallel([a, b])) != flatten(composed([a, b]))
    assert contained(repeated(parallel([a, b]), 12), steps)
    assert not contained(a, steps)  # a charge for one class alone was not what was planned


def test_charges_of_one_part_add_up_and_parts_stay_apart():
    g, h = gaussian(1.0), gaussian(2.0)
    twice = composed([one_part("a", 3, 5, g), one_part("a", 3, 5, composed([g, h]))])
    assert flatten(twice) == flatten(one_part("a", 3, 5, composed([repeated(g, 2), h])))
    assert flatten(one_part("a", 3, 5, g)) != flatten(one_part("a", 2, 5, g))
    assert flatten(one_part("a", 0, 1, g)) == flatten(g)
    assert not contained(g, repeated(one_part("a", 3, 5, g), 9))
    whole, partitions = by_part(flatten(composed([twice, h, one_part("b", 0, 5, h)])))
    assert whole == flatten(h)
    assert partitions[("a", 5)] == {3: flatten(composed([g, g, h]))}
    assert partitions[("b", 5)] == {0: flatten(h)}


def test_sampling_everything_is_not_sampling_and_nothing_is_nothing():
    assert flatten(poisson(1.0, gaussian(2.0))) == flatten(gaussian(2.0))
    assert flatten(without_replacement(7, 7, gaussian(2.0))) == flatten(gaussian(2.0))
    assert flatten(without_replacement(7, 0, gaussian(2.0))) == Counter()
    assert flatten(poisson(0.0, disclosed())) == Counter()
    assert unflatten(Counter()) == nothing()


def test_in_words():
    step = poisson(0.0214, gaussian(0.81))
    assert describe(repeated(step, 300)) == "300 x Poisson(q=0.0214) of Gaussian(sigma=0.81)"
    joint = poisson(1e-3, repeated(gaussian(1.07), 32))
    assert describe(joint) == "Poisson(q=0.001) of [32 x Gaussian(sigma=1.07)]"
    drawn = without_replacement(1000, 1, gaussian(1.07))
    assert describe(drawn) == "Sample(1 of 1000) of Gaussian(sigma=1.07)"
    assert describe(nothing()) == "nothing"
    assert describe(gaussian_of_exchange(2.0)) == "Gaussian(sigma=2 of an exchange)"
    both = describe(composed([disclosed(), parallel([gaussian(1.0), gaussian(2.0)])]))
    assert "disclosed without noise" in both
    assert "the worst of [Gaussian(sigma=1) | Gaussian(sigma=2)]" in both
    rounds = [one_part("users", k % 3, 4, gaussian(1.0)) for k in range(9)]
    assert describe(composed(rounds)) == "3 x Gaussian(sigma=1) in 3 of 4 parts"


def test_without_noise_every_use_is_a_disclosure_and_parts_add_up_to_the_whole():
    parts = [repeated(poisson(0.1, gaussian(2.0)), 3), one_part("class", 1, 4, gaussian(1.0))]
    whole = flatten(without_noise(composed(parts)))
    assert whole == flatten(repeated(disclosed(), 4))
    assert whole == sum((flatten(without_noise(part)) for part in parts), Counter())
    assert without_noise(gaussian(1.0)) == disclosed()


step = {"type": "gaussian", "sigma": 1.0}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: gaussian(-1.0), "sigma"),
        (lambda: gaussian(math.nan), "sigma"),
        (lambda: gaussian(math.inf), "sigma"),
        (lambda: gaussian(True), "sigma must be a number"),
        (lambda: poisson(1.5, gaussian(1.0)), "sampling rate"),
        (lambda: repeated(gaussian(1.0), -1), "repetitions"),
        (lambda: from_json({"type": "repeated", "times": 1.5, "event": step}), "whole number"),
        (lambda: repeated(gaussian(1.0), True), "whole number"),
        (lambda: without_replacement(3, 4, gaussian(1.0)), "4 of 3"),
        (lambda: one_part("a", 5, 5, gaussian(1.0)), "part 5 of 5"),
        (lambda: one_part("a", -1, 5, gaussian(1.0)), "whole number"),
        (lambda: one_part(3, 0, 5, gaussian(1.0)), "must be a text"),
        (lambda: to_json(dp.LaplaceDpEvent(1.0)), "LaplaceDpEvent"),
        (lambda: to_json(composed([dp.UnsupportedDpEvent()])), "UnsupportedDpEvent"),
        (lambda: from_json({"type": "gausian", "sigma": 1.0}), "Did you mean 'gaussian'"),
        (lambda: from_json({"sigma": 1.0}), "type"),
        (lambda: from_json({"type": "composed", "events": [1]}), "type"),
        (lambda: from_json({"type": "gaussian"}), "sigma"),
        (lambda: from_json({"type": "gaussian", "sigma": 1.0, "clip": 1}), "clip"),
        (lambda: from_json({"type": "gaussian", "sigma": None}), "sigma"),
        (lambda: from_json({"type": "composed", "events": 3}), "list"),
        (lambda: from_json({"type": "repeated", "times": 2, "event": 3}), "type"),
    ],
)
def test_bad_events_are_refused_with_advice(call, says):
    with pytest.raises(UserError, match=says):
        call()
