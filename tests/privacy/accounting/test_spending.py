"""The ways of a removed, an added and a replaced record through the parts of an event."""

import math

import pytest
from countings import DELTA, sgd
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_accounting import naive_event_epsilon

from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting.accountant import epsilon, gaussian_mu_of
from fedsynth.privacy.accounting.events import (
    composed,
    disclosed,
    gaussian,
    gaussian_of_exchange,
    one_part,
    parallel,
    poisson,
    repeated,
)
from fedsynth.privacy.accounting.spending import Change, Spending, changes, key, spendings


def test_a_replaced_record_may_change_its_class():
    """From a class with much noise and a large rate to one with the reverse: neither class alone
    costs as much as leaving the one and entering the other."""
    classes = [sgd(0.9, 6.0, 40), sgd(0.005, 0.55, 40)]
    event = composed([one_part("classes", i, 2, part) for i, part in enumerate(classes)])
    found = epsilon(event, DELTA, relation="replace_one")
    by_hand = naive_event_epsilon(event, DELTA, "replace_one")
    assert by_hand * (1 - 1e-3) <= found <= by_hand * (1 + 3e-3)
    assert parallel_changes(event) == 4  # within each, and across in either direction


def parallel_changes(event):
    return len(changes(key(event)))


@settings(max_examples=6, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.01, 0.5), st.floats(0.7, 5.0), st.integers(1, 60)),
        min_size=2,
        max_size=3,
    ),
    st.floats(2.0, 9.0),
)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_parts_cost_what_all_ways_by_hand_cost(relation, runs, whole):
    parts = [one_part("p", i, len(runs), sgd(*run)) for i, run in enumerate(runs)]
    event = composed([*parts, gaussian(whole)])
    found = epsilon(event, DELTA, relation=relation)
    by_hand = naive_event_epsilon(event, DELTA, relation)
    assert by_hand * (1 - 2e-3) - 1e-3 <= found <= by_hand * (1 + 5e-3) + 1e-3
    named = composed([parallel([sgd(*run) for run in runs]), gaussian(whole)])
    assert epsilon(named, DELTA, relation=relation) == pytest.approx(found, rel=3e-3, abs=1e-3)


def test_equal_parts_cost_one_replacement_and_gaussians_twice_their_mu():
    parts = [one_part("classes", i, 10, sgd(0.02, 1.0, 200)) for i in range(10)]
    alone = epsilon(sgd(0.02, 1.0, 200), DELTA, relation="replace_one")
    assert epsilon(composed(parts), DELTA, relation="replace_one") == alone
    assert changes(key(parallel([gaussian(5.0), gaussian(7.0)]))) == (
        Change(replaced=Spending(mu2=5.0**-2)),
    )
    either = parallel([gaussian(5.0), gaussian(7.0)])
    assert gaussian_mu_of(either, "replace_one") == pytest.approx(2 / 5)
    assert gaussian_mu_of(either) == pytest.approx(1 / 5)
    assert gaussian_mu_of(sgd(0.1, 1.0, 1)) is None
    assert gaussian_mu_of(disclosed()) is None


def test_parallel_branches_within_a_sample_are_one_gaussian():
    inner = parallel([gaussian(2.0), gaussian(4.0)])
    assert epsilon(repeated(poisson(0.1, inner), 9), DELTA, relation="replace_one") == epsilon(
        sgd(0.1, 2.0, 9), DELTA, relation="replace_one"
    )


def test_many_different_classes_are_counted():
    """More pairs of classes than combinations that are compared under add/remove."""
    classes = [sgd(0.01 * (i + 1), 1.0 + 0.15 * i, 30) for i in range(10)]
    event = composed([one_part("classes", i, 10, part) for i, part in enumerate(classes)])
    worst = max(epsilon(part, DELTA, relation="replace_one") for part in classes)
    assert len(spendings(key(event))) == 10
    assert epsilon(event, DELTA, relation="replace_one") == worst  # moving between them is less
    choices = [parallel([sgd(0.1 + i / 99, 1.0, 1), sgd(0.01, 0.5 + i / 99, 1)]) for i in range(8)]
    with pytest.raises(UserError, match="outermost"):
        epsilon(composed(choices), DELTA, relation="replace_one")


def test_a_bound_on_exchanges_costs_them_once_and_promises_nothing_else():
    event = repeated(gaussian_of_exchange(3.0), 4)
    assert gaussian_mu_of(event, "replace_one") == pytest.approx(2 / 3, rel=1e-12)
    assert epsilon(event, DELTA, relation="replace_one") == pytest.approx(
        epsilon(repeated(gaussian(3.0), 4), DELTA), rel=1e-12
    )
    for accountant in ("pld", "rdp", "rdp_classic"):
        assert epsilon(event, DELTA, accountant) == math.inf
    beside = composed([event, gaussian(6.0)])
    assert gaussian_mu_of(beside, "replace_one") == pytest.approx(math.sqrt(4 / 9 + 4 / 36))


@pytest.mark.parametrize(
    "event",
    [
        one_part("classes", 0, 2, gaussian_of_exchange(3.0)),
        parallel([gaussian_of_exchange(3.0)] * 2),
        parallel([gaussian_of_exchange(3.0), gaussian(3.0)]),
        poisson(0.1, gaussian_of_exchange(3.0)),
        gaussian_of_exchange(0.0),
    ],
)
def test_where_a_record_can_leave_a_part_or_a_sample_such_a_bound_is_none(event):
    """An exchange removes a record there, which the mechanism does not bound."""
    for relation in ("add_remove", "replace_one"):
        assert epsilon(event, DELTA, relation=relation) == math.inf
