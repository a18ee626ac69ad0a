"""A run on real nodes: its files, and the engine behind its report."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_runs as tiny

from fedsynth.core.errors import UserError
from fedsynth.experiment.flower_apps import open_job_engine
from fedsynth.experiment.job_metrics import privacy_metrics
from fedsynth.experiment.node_run import (
    ReleasedEngine,
    read_submissions,
    released,
    stages_released,
    write_submissions,
)
from fedsynth.experiment.node_states import write_failure
from fedsynth.experiment.party_extracts import known_entries, on_nodes
from fedsynth.experiment.run_ledger import merged_ledger
from fedsynth.experiment.simulated_parties import run_job
from fedsynth.privacy.ledger import LedgerDamaged, read_chains, read_entries
from fedsynth.storage.run_directory import CONFIG, LEDGER, RunDirectory


def test_a_job_that_is_not_released_names_the_reason(tmp_path):
    job = tiny.tiny_job("psg", tmp_path)
    write_submissions(RunDirectory(tmp_path), {})
    write_failure(job, UserError("party 1 refused (budget): too much"))
    refusal = pytest.raises(UserError, match=r"0 of 2 stages .* party 1 refused \(budget\)")
    with open_job_engine("inprocess") as inside, refusal:
        run_job(ReleasedEngine(inside), job)
    assert not job.parties_folder().exists()


def test_a_simulation_beside_the_run_has_parties_of_its_own(tmp_path, here):
    """Evaluations of a stage may simulate a job, with policies and ledgers in another folder."""
    job = tiny.tiny_job("psg", tmp_path / "beside", "together")
    stages: list[int] = []
    run_job(ReleasedEngine(here), job, on_stage=lambda stage, _: stages.append(stage))
    assert stages == [0]
    assert len(list(job.parties_folder().glob("party-*/ledger.jsonl"))) == 3


def test_the_report_reads_releases_and_signed_ledgers_only(tmp_path, here):
    """The ledgers lie at the parties; certificates hold the lines of the job."""
    job = tiny.tiny_job("psg", tmp_path / "run", "together")
    tiny.release(job, here)
    run = RunDirectory(Path(job.out))
    own = [read_entries(job.party_folder(party) / LEDGER) for party in range(3)]
    write_submissions(run, {})
    assert released(job)
    assert on_nodes(job)
    assert stages_released(job) == 1
    job.parties_folder().rename(tmp_path / "elsewhere")
    assert [known_entries(job, party) for party in range(3)] == own
    stages: list[int] = []
    run_job(ReleasedEngine(here), job, on_stage=lambda stage, _: stages.append(stage))
    assert stages == [0]
    ledger = run.write_text(LEDGER, merged_ledger([job]))
    assert read_chains(ledger) == own
    altered = ledger.read_text().replace('"stage":0', '"stage":1', 1)
    ledger.write_text(altered)
    with pytest.raises(LedgerDamaged, match="extract 1"):
        read_chains(ledger)


def test_a_party_without_a_statement_is_counted_by_its_plan(tmp_path):
    """Not as if it had spent nothing."""
    job = tiny.tiny_job("psg", tmp_path)
    write_submissions(RunDirectory(tmp_path), {})
    assert known_entries(job, 0) is None
    counted = privacy_metrics(job, 0)
    assert counted["epsilon_rdp"] == pytest.approx(10.0, rel=1e-3)
    assert privacy_metrics(job, 0, lambda _: ())["epsilon_rdp"] == 0.0


def test_submissions_are_those_of_a_run_on_nodes(tmp_path):
    (tmp_path / CONFIG).write_text("{}")
    run = RunDirectory.read(tmp_path)
    with pytest.raises(UserError, match="is no run on real nodes"):
        read_submissions(run)
    write_submissions(run, {"psg": {"address": "a:1", "run": 5}})
    assert read_submissions(run) == {"psg": {"address": "a:1", "run": 5}}
