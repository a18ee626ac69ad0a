"""A party's statement holds facts that agree, and is refused if they do not."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import certified
import pytest

from fedsynth.core.errors import UserError
from fedsynth.core.plan import PARTY_CLASS_COUNTS
from fedsynth.engine.base import Engine
from fedsynth.experiment.job import Job
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.certificate.statement import Statement, read_statement, statement_body
from fedsynth.privacy.ledger_entry import read_entries
from fedsynth.privacy.party_key import PartyKey


@pytest.fixture(scope="module")
def job(here: Engine, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job with several charges per party."""
    return certified.released(
        "dp_sgd_joint", tmp_path_factory.mktemp("job") / "run", here, "together"
    )


def body_of(made: Job, **changes: Any) -> dict[str, Any]:
    entries = read_entries(made.party_folder(1) / "ledger.jsonl")
    arguments = {"job": made.name, "job_digest": "d", "plan": made.plan(0), "party": 1}
    return statement_body(**{**arguments, "entries": entries, **changes})


def key_of(made: Job) -> str:
    return PartyKey.of_owner(made.party_folder(1), "party 1", made.noise_seed).public


def test_a_statement_says_what_the_party_charged(job: Job) -> None:
    found = read_statement(body_of(job), key_of(job))
    assert flatten(found.total) == flatten(job.plan(0).of(1).event)
    assert (found.party, found.stage, found.unit, found.delta) == (1, 1, "record", 1e-3)
    assert found.noise == ("noise_seed=7",)
    assert [observer.name for observer in found.observers] == ["server"]
    assert found.not_shown == 0


def test_lines_of_other_jobs_are_counted_and_not_shown(job: Job) -> None:
    other = body_of(job, job="another")
    assert other["ledger"]["entries"] == []
    found = read_statement(other, key_of(job))
    assert found.not_shown == len(read_entries(job.party_folder(1) / "ledger.jsonl"))
    assert isinstance(found, Statement)


def test_counts_of_classes_are_stated_where_the_plan_names_them_as_public(job: Job) -> None:
    plan = job.plan(0)
    assert PARTY_CLASS_COUNTS not in plan.assumes
    assert body_of(job)["class_counts"] == {}
    public = dataclasses.replace(plan, assumes=(PARTY_CLASS_COUNTS,))
    counts = {str(label): n for label, n in plan.info(1).class_counts.items()}
    assert body_of(job, plan=public)["class_counts"] == counts


def entry(body: dict[str, Any], number: int) -> dict[str, Any]:
    found: dict[str, Any] = body["ledger"]["entries"][number]
    return found


CHANGES = {
    "another form": lambda b: b.update(form="fedsynth party statement 9"),
    "a field more": lambda b: b.update(more=1),
    "a field less": lambda b: b.pop("unit"),
    "a text for a number": lambda b: b.update(records="many"),
    "truth for a number": lambda b: b.update(stage=True),
    "no unit": lambda b: b.update(unit="household"),
    "no relation": lambda b: b.update(relation="friends"),
    "no delta": lambda b: b.update(delta=0.0),
    "no budget": lambda b: b.update(budget="plenty"),
    "more of a class than records": lambda b: b["class_counts"].update({"0": 10**6}),
    "no observer": lambda b: b.update(views=[]),
    "an altered label": lambda b: entry(b, 0).update(label="call 9"),
    "an altered number": lambda b: entry(b, 1).update(seq=7),
    "exchanged lines": lambda b: b["ledger"]["entries"].reverse(),
    "a line twice": lambda b: b["ledger"]["entries"].append(entry(b, -1)),
    "a field more in a line": lambda b: entry(b, 0).update(more=1),
    "no line": lambda b: b["ledger"]["entries"].append(1),
    "another party": lambda b: b.update(party=2),
    "another job": lambda b: b.update(job="another"),
    "an earlier stage": lambda b: b.update(stage=0),
    "a shorter ledger": lambda b: b["ledger"].update(length=1),
    "another head": lambda b: b["ledger"].update(head="0" * 64),
    "a false signature": lambda b: entry(b, -1).update(signature="0" * 128),
    "another unit": lambda b: b.update(unit="user"),
    "another budget": lambda b: b.update(budget=9.0),
    "another payload": lambda b: entry(b, -1).update(payload="0" * 64),
    "no head": lambda b: b["ledger"].pop("head"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_statement_that_contradicts_itself_is_refused(job: Job, change: certified.Change) -> None:
    body = copy.deepcopy(body_of(job))
    read_statement(body, key_of(job))
    change(body)
    with pytest.raises((ValueError, UserError), match=r"."):
        read_statement(body, key_of(job))


def test_nothing_of_the_machine_is_in_a_statement(job: Job) -> None:
    assert str(Path(job.out)) not in repr(body_of(job))
