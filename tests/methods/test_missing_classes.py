"""Tests of parties that hold fewer or more classes than declared: nothing that leaves them may
show it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.outcomes import ReleasedModel
from fedsynth.data import registry as datasets
from fedsynth.data.records import Records
from fedsynth.experiment import client_session
from fedsynth.experiment.method_selection import able
from fedsynth.experiment.scenario import party_records, scenario_stages
from fedsynth.methods.registry import all_methods
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.ledger import read_entries, total
from fedsynth.storage.run_directory import RunDirectory

DATA = datasets.find("shapes").info
PRIVATE = [name for name in able(DATA) if all_methods()[name].private]


def shapes(job) -> list[object]:
    """The shapes of all releases."""
    seen = []
    run = RunDirectory(Path(job.out))
    for stage in range(len(scenario_stages(job.scenario))):
        outcome = run.releases.load(job.name, stage + 1)
        if isinstance(outcome, ReleasedModel):
            arrays = dict(outcome.state)
            seen.append({name: value.shape for name, value in arrays.items()})
        else:
            arrays = {"images": outcome.images}
            seen.append(outcome.images.shape)
            assert set(outcome.labels.tolist()) <= set(job.plan(stage).stage.classes)
        assert all(torch.isfinite(value).all() for value in arrays.values())
    return seen


def assert_alike(other, job) -> None:
    """Neither shapes nor ledgers tell one run from the other."""
    assert shapes(other) == shapes(job)
    for party in range(job.scenario.parties):
        ledgers = [read_entries(j.party_folder(party) / "ledger.jsonl") for j in (job, other)]
        spent = [flatten(total(entries)) for entries in ledgers]
        assert spent[0] == spent[1]


def with_missing_classes(scenario, party):
    """Party 0 without its first two classes, and party 1 without records."""
    records = party_records(scenario, party)
    lost = torch.unique(records.labels)[: 2 if party == 0 else None]
    kept = ~torch.isin(records.labels, lost)
    return Records(records.images[kept], records.labels[kept])


@pytest.mark.parametrize("name", PRIVATE)
def test_missing_classes_and_an_empty_party_change_no_shape_and_no_cost(
    name, here, tmp_path, monkeypatch
):
    """Shapes and ledgers are those of parties with all classes."""
    job = tiny.tiny_job(name, tmp_path / "all")
    other = dataclasses.replace(job, out=str(tmp_path / "missing"))
    assert all(len(stage.parties[0].class_counts) > 2 for stage in scenario_stages(job.scenario))
    tiny.release(job, here)
    monkeypatch.setattr(client_session, "party_records", with_missing_classes)
    tiny.release(other, here)
    assert_alike(other, job)


def with_an_undeclared_class(scenario, party):
    """Party 0 with one more record, of a class that it does not declare."""
    records = party_records(scenario, party)
    if party:
        return records
    label = next(c for c in range(DATA.classes) if c not in records.labels)
    return Records(
        torch.cat([records.images, records.images[:1].flip(2)]),
        torch.cat([records.labels, torch.tensor([label])]),
    )


@pytest.mark.parametrize("name", PRIVATE)
def test_a_record_of_an_undeclared_class_changes_no_shape_and_no_cost(
    name, here, tmp_path, monkeypatch
):
    """And makes no method fail, which would disclose it."""
    job = tiny.tiny_job(name, tmp_path / "declared")
    other = dataclasses.replace(job, out=str(tmp_path / "more"))
    tiny.release(job, here)
    monkeypatch.setattr(client_session, "party_records", with_an_undeclared_class)
    tiny.release(other, here)
    assert_alike(other, job)
