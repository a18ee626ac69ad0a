"""Every method keeps its budget for both neighbouring relations, by an accountant of the tests."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import pytest
import tiny_runs as tiny
from contract_cases import PRIVATE, Case, stages_of
from naive_accounting import naive_event_epsilon

from fedsynth.core.enums import Relation
from fedsynth.core.errors import UserError
from fedsynth.core.types import Budget
from fedsynth.experiment.job import Job
from fedsynth.methods.registry import method
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import IN_BALL, flatten, from_text
from fedsynth.privacy.accounting.spending import key
from fedsynth.privacy.ledger import SLACK, read_entries, total

EPSILON, DELTA = 4.0, 1e-4
BY_HAND = 4e-3  # relative error of the count by hand


@functools.cache
def by_hand(text: str, relation: str) -> float:
    """The epsilon of the event with this key."""
    return naive_event_epsilon(from_text(text), DELTA, relation)


def job(name: str, out: Path, relation: str, accounting: str = "pld", scenario: str = "") -> Job:
    """A tiny job under this relation."""
    found = Case(name, scenario or tiny.scenarios_of(name)[0]).job(out)
    budget = Budget(EPSILON, DELTA, relation=Relation(relation), accounting=accounting)
    return dataclasses.replace(found, budget=budget)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("name", PRIVATE)
def test_plans_are_within_the_budget_and_use_it_up(name, relation, tmp_path):
    """By hand, for the accountants that are bounds. Rounds are whole numbers, and what one query
    needs may be more than its share: a plan may cost less than the budget."""
    for accounting in ("pld", "rdp"):
        spent = []
        for scenario in tiny.scenarios_of(name):
            some = job(name, tmp_path, relation, accounting, scenario)
            for stage in stages_of(some):
                events = {key(share.event) for share in some.plan(stage).parties}
                spent += [by_hand(text, relation) for text in events]
        assert max(spent) <= EPSILON * (1 + BY_HAND)
        assert max(spent) >= EPSILON * (0.9 if accounting == "pld" else 0.5)


@pytest.mark.parametrize("accounting", ["pld", "rdp", "paper"])
@pytest.mark.parametrize("name", PRIVATE)
def test_a_replacement_needs_at_least_as_much_noise_as_a_removal(name, accounting, tmp_path):
    by = method(name).paper_convention if accounting == "paper" else accounting
    if by == "wor_bound":  # counts no bound: refused with advice, for either relation
        for relation in Relation:
            with pytest.raises(UserError, match="accounting=paper"):
                job(name, tmp_path, relation, by).plan(0)
        return
    plans = {r: job(name, tmp_path, r, by).plan(0).parties for r in Relation}
    for less, more in zip(plans[Relation.ADD_REMOVE], plans[Relation.REPLACE_ONE], strict=True):
        assert (
            more.noise_multiplier >= less.noise_multiplier * (1 - 2e-4) or more.steps < less.steps
        )
        if by == "pld" and IN_BALL not in key(more.event):
            cost = [epsilon(share.event, DELTA) for share in (less, more)]
            assert cost[1] < 0.9 * cost[0]


@pytest.mark.parametrize("name", PRIVATE)
def test_parties_charge_their_plan_under_replacement_and_keep_the_budget(name, here, tmp_path):
    some = job(name, tmp_path / "run", Relation.REPLACE_ONE, "rdp")
    tiny.release(some, here)
    for stage in stages_of(some):
        for share in some.plan(stage).parties:
            charged = total(read_entries(some.party_folder(share.party) / "ledger.jsonl"))
            assert flatten(charged) <= flatten(share.event)
            spent = epsilon(charged, DELTA, "rdp", Relation.REPLACE_ONE)
            assert 0 < spent <= EPSILON * (1 + SLACK)
