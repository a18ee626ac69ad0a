"""The privacy contract of methods: records affect releases through mechanisms only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_runs as tiny
import torch
from contract_cases import PLAIN, PRIVATE, each_private_case, stages_of
from instruments import Transcript
from torch.nn.modules.batchnorm import _BatchNorm

from fedsynth.data.records import Records
from fedsynth.engine.messages import PartyRefused
from fedsynth.experiment import client_session
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import party_records
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.ledger import SLACK, Ledger, read_entries, total
from fedsynth.storage.run_directory import RunDirectory


def run_with(
    records_of: Callable[[Records, int], Records], job: Job, engine: Any, patch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """The releases of a run in which parties hold other records than planned."""
    patch.setattr(
        client_session,
        "party_records",
        lambda scenario, party: records_of(party_records(scenario, party), party),
    )
    tiny.release(job, engine)
    return {k: v for k, v in tiny.outputs(job.out).items() if k.endswith(".npz")}


@each_private_case
def test_a_record_changes_mechanisms_within_their_bounds_and_nothing_else(
    case, here, tmp_path, monkeypatch
):
    """All mechanisms of an adaptive run, on neighbouring data and with the same earlier outputs.

    The values before noise change by at most the bound that the noise is scaled to. With the
    outputs of the mechanisms held fixed, releases do not change even if all data does, so records
    affect them in no other way."""
    transcript = Transcript(monkeypatch)
    first = run_with(unchanged, case.job(tmp_path / "a"), here, monkeypatch)
    known = transcript.replay()
    neighbour = other_first_record if case.changes == tiny.STRATIFIED else without_last_record
    assert run_with(neighbour, case.job(tmp_path / "b"), here, monkeypatch) == first
    assert set(transcript.before) == set(known.before)
    changes = []
    for purpose, values in transcript.before.items():
        squares = [((a - b) ** 2).sum() for a, b in zip(values, known.before[purpose], strict=True)]
        changes.append(float(torch.stack(squares).sum().sqrt()) / transcript.bound[purpose])
    assert max(changes) <= 1 + 1e-3
    assert max(changes) > 1e-3, "the record that was left out had no effect"
    if not case.changes:
        transcript.replay()
        assert run_with(inverted, case.job(tmp_path / "c"), here, monkeypatch) == first
    assert not any(isinstance(part, _BatchNorm) for m in transcript.models for part in m.modules())


def unchanged(records: Records, _party: int) -> Records:
    """The records as they are."""
    return records


def without_last_record(records: Records, party: int) -> Records:
    """Party 0 without its last record."""
    return Records(records.images[:-1], records.labels[:-1]) if party == 0 else records


def other_first_record(records: Records, party: int) -> Records:
    """Party 0 with another image of the same class in place of its first one."""
    images = records.images.clone()
    images[0] = inverted(records, party).images[0]
    return Records(images, records.labels) if party == 0 else records


def inverted(records: Records, _party: int) -> Records:
    """Inverted images at every party."""
    largest = 255 if records.images.dtype == torch.uint8 else 1
    return Records(largest - records.images, records.labels)


@pytest.mark.parametrize("case", [case for case in PLAIN if case.name in PRIVATE], ids=str)
def test_a_party_with_a_smaller_budget_refuses_and_there_is_no_release(
    case, here, tmp_path, monkeypatch
):
    job = case.job(tmp_path / "run")
    own = dataclasses.replace(job.budget, epsilon=job.budget.epsilon / 10)
    real = Ledger

    def frugal(path: Path, **info: Any) -> Ledger:
        return real(path, **{**info, "budget": own if info["party"] == 1 else job.budget})

    monkeypatch.setattr(client_session, "Ledger", frugal)
    with pytest.raises(
        PartyRefused, match=r"party 1 refused \(budget\): party 1 refuses: .* of 1 at delta"
    ):
        tiny.release(job, here)
    spent = total(read_entries(job.party_folder(1) / "ledger.jsonl"))
    assert epsilon(spent, own.delta, own.accounting) <= own.epsilon * (1 + SLACK)
    stage = next(s for s in stages_of(job) if 1 in [p.party for p in job.plan(s).parties])
    assert not RunDirectory(Path(job.out)).releases.exists(job.name, stage + 1)
