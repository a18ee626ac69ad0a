"""Plans of sampled steps: events, calibration, and the sampling rates of classes."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.types import Budget, PartyInfo
from fedsynth.methods.common.poisson_plan import (
    class_rates,
    expected_records,
    sampled_party_plan,
    step_event,
)
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import flatten, repeated

INFO = PartyInfo(3, 1000, {0: 400, 1: 600})


def test_without_given_noise_the_steps_cost_the_budget():
    plan = sampled_party_plan(INFO, Budget(2.0, 1e-5), sampling_rate=0.1, steps=20, bytes_up=0)
    assert (plan.party, plan.records, plan.steps) == (3, 1000, 20)
    assert 1.99 <= epsilon(plan.event, 1e-5) <= 2.0
    assert flatten(repeated(step_event(plan), 20)) == flatten(plan.event)


def test_given_noise_is_used_as_it_is():
    plan = sampled_party_plan(
        INFO, Budget(2.0, 1e-5), sampling_rate=0.1, steps=20, noise=0.7, bytes_up=0
    )
    assert plan.noise_multiplier == 0.7
    assert epsilon(plan.event, 1e-5) > 2.0


@given(
    st.dictionaries(st.integers(0, 9), st.integers(1, 5000), min_size=1),
    st.integers(1, 100),
)
@settings(max_examples=50, deadline=None)
def test_a_rare_class_does_not_set_the_price_of_the_others(counts, group):
    info = PartyInfo(0, sum(counts.values()), counts)
    rates = class_rates(group, info)
    average = group / (info.records / len(counts))
    assert list(rates) == sorted(counts)
    assert all(0 < rate <= 1 for rate in rates.values())
    assert max(rates.values()) <= 2 * average * (1 + 1e-9)
    for label, expected in zip(rates, expected_records(rates, info).tolist(), strict=True):
        assert expected <= min(group, counts[label]) * (1 + 1e-6)


def test_near_balanced_classes_are_sampled_as_published():
    counts = {0: 5923, 1: 6742, 5: 5421}
    info = PartyInfo(0, sum(counts.values()), counts)
    assert class_rates(50, info) == {c: 50 / n for c, n in counts.items()}
    torch.testing.assert_close(
        expected_records(class_rates(50, info), info), torch.full((3,), 50.0)
    )
