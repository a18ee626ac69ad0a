"""Simulated parties read policies that allow their job and nothing else, and answer by them."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from pathlib import Path

import pytest
import tiny_runs as tiny

from fedsynth.core.errors import Refusal
from fedsynth.engine.base import Engine
from fedsynth.engine.messages import PartyRefused
from fedsynth.experiment.proposal import own_scenario, proposal_text
from fedsynth.experiment.simulated_parties import PARTY_FILE, policy_of, write_policies
from fedsynth.privacy.ledger import read_entries
from fedsynth.privacy.policy import parse_policy, policy_text, read_policy


def test_each_party_of_a_job_has_the_policy_in_its_folder(tmp_path: Path) -> None:
    job = tiny.tiny_job("psg", tmp_path / "run", "together", noise_seed=None)
    folder = Path(write_policies(job))
    files = [job.party_folder(party) / PARTY_FILE for party in range(3)]
    assert sorted(folder.glob("*/*")) == files
    (policy,) = {read_policy(file) for file in files}
    assert policy == parse_policy(policy_text(policy_of(job)))
    assert policy.methods == ("psg",)
    assert policy.lifetime.epsilon == job.budget.epsilon == policy.most_epsilon
    assert policy.accounting == (job.budget.accounting,)
    assert policy.noise_seed is None
    own = own_scenario(policy.at(folder).data)
    assert dataclasses.replace(own, stages=job.scenario.stages) == job.scenario
    assert os.path.normpath(files[0].parent / policy.progress) == str(job.progress_folder())


def test_a_policy_that_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    """A worker reads it again when it changes: a resumed run with the same one is no change."""
    job = tiny.tiny_job("psg", tmp_path / "run", "together")
    write_policies(job)
    path = job.party_folder(1) / PARTY_FILE
    before = path.stat().st_mtime_ns
    write_policies(job)
    assert path.stat().st_mtime_ns == before
    write_policies(dataclasses.replace(job, noise_seed=8))
    assert read_policy(path).noise_seed == 8


def test_only_a_reference_without_privacy_gets_an_infinite_budget(tmp_path: Path) -> None:
    for name in ("psg", "upper_bound"):
        policy = policy_of(tiny.tiny_job(name, tmp_path / name))
        assert math.isinf(policy.lifetime.epsilon) == (name == "upper_bound")


def test_other_settings_at_the_same_folder_are_refused(here: Engine, tmp_path: Path) -> None:
    """The same question at the same price, about other features: the same noise on both sums would
    give their difference away, and the world of a job has no budget for a second one."""
    jobs = [
        tiny.tiny_job("dp_merf", tmp_path / "run", "together", {"scale": scale})
        for scale in (5.0, 6.0)
    ]
    tiny.release(jobs[0], here)
    ledger = jobs[0].party_folder(0) / "ledger.jsonl"
    paid = read_entries(ledger)
    for name in ("releases", "server"):
        shutil.rmtree(tmp_path / "run" / name, ignore_errors=True)
    assert jobs[1].plan(0).of(0).event == jobs[0].plan(0).of(0).event
    with pytest.raises(PartyRefused, match="the lifetime budget of this party is"):
        tiny.release(jobs[1], here)
    tiny.release(jobs[0], here)
    assert read_entries(ledger) == paid


def test_a_simulated_party_answers_by_its_own_policy(here: Engine, tmp_path: Path) -> None:
    """Whoever writes another policy into its folder changes what it answers."""
    job = tiny.tiny_job("psg", tmp_path / "run", "together")
    strict = dataclasses.replace(policy_of(job), job_epsilon=0.5)
    tiny.forget()
    folder = tmp_path / "policies"
    for party in range(job.scenario.parties):
        place = folder / f"party-{party}"
        place.mkdir(parents=True)
        (place / "party.yaml").write_text(policy_text(strict))
    with pytest.raises(PartyRefused, match=r"one job may cost at most 0\.5") as caught:
        here.run(job.text(), 3, proposal=proposal_text(job), policies=str(folder))
    assert caught.value.code is Refusal.BUDGET
