"""Parties that hold less than was planned for: what leaves them must not show it by its form, and
an empty class is noise like any other."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.outcomes import ReleasedModel
from fedsynth.data import registry as datasets
from fedsynth.experiment import client_session
from fedsynth.experiment.method_selection import able
from fedsynth.experiment.scenario import party_records, scenario_stages
from fedsynth.methods.registry import all_methods
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.ledger import read_entries, total
from fedsynth.privacy.party_data import Records
from fedsynth.storage.run_directory import RunDirectory

DATA = datasets.find("shapes").info
PRIVATE = [name for name in able(DATA) if all_methods()[name].private]


def forms(job) -> list[object]:
    """What everybody sees of the releases without looking into them."""
    seen = []
    run = RunDirectory(Path(job.out))
    for stage in range(len(scenario_stages(job.scenario))):
        outcome = run.load_release(job.name, stage + 1)
        if isinstance(outcome, ReleasedModel):
            arrays = dict(outcome.state)
            seen.append({name: value.shape for name, value in arrays.items()})
        else:
            arrays = {"images": outcome.images}
            seen.append(outcome.images.shape)
            assert set(outcome.labels.tolist()) <= set(job.plan(stage).stage.classes)
        assert all(torch.isfinite(value).all() for value in arrays.values())
    return seen


def less(world, party):
    """Party 0 without its first two classes, party 1 without anything."""
    records = party_records(world, party)
    lost = torch.unique(records.labels)[: 2 if party == 0 else None]
    kept = ~torch.isin(records.labels, lost)
    return Records(records.images[kept], records.labels[kept])


@pytest.mark.parametrize("name", PRIVATE)
def test_classes_that_are_not_there_and_a_party_without_records_release_noise(
    name, here, tmp_path, monkeypatch
):
    """They answer as if nothing were, and pay the same."""
    job = tiny.tiny_job(name, tmp_path / "all")
    other = dataclasses.replace(job, out=str(tmp_path / "less"))
    assert all(len(stage.parties[0].class_counts) > 2 for stage in scenario_stages(job.scenario))
    tiny.release(job, here)
    monkeypatch.setattr(client_session, "party_records", less)
    tiny.release(other, here)
    assert forms(other) == forms(job)
    for party in range(job.scenario.parties):
        ledgers = [read_entries(j.party_folder(party) / "ledger.jsonl") for j in (job, other)]
        spent = [flatten(total(entries)) for entries in ledgers]
        assert spent[0] == spent[1]
