"""Simulated parties read policies that allow their job and nothing else."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path

import tiny_runs as tiny

from fedsynth.experiment.proposal import own_scenario
from fedsynth.experiment.simulated_parties import PARTY_FILE, policy_of, write_policies
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
