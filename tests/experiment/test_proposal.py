"""A proposal holds nothing of a party, and its form is checked before anything is looked up."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import tiny_runs as tiny

from fedsynth.core.errors import Refusal, Refused
from fedsynth.experiment.job import Job, public_name
from fedsynth.experiment.proposal import party_job, proposal_text, read_proposal
from fedsynth.experiment.simulated_parties import policy_of


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return tiny.tiny_job("psg", tmp_path / "run", "together")


def test_a_proposal_names_no_path_seed_or_device(job: Job, tmp_path: Path) -> None:
    own = dataclasses.replace(
        job,
        scenario=dataclasses.replace(
            job.scenario, data=f"file:{tmp_path}/ward.npz", data_dir=str(tmp_path)
        ),
        plugins=(str(tmp_path / "code.py"),),
        noise_seed=4711,
    )
    text = proposal_text(own)
    assert str(tmp_path) not in text
    assert "4711" not in text
    assert read_proposal(text).scenario["data"] == "ward" == public_name(own.scenario.data)
    assert set(json.loads(text)) == {
        *("method", "settings", "budget", "seed", "scenario", "secure_sum", "version")
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ouy": 1}, "unknown key 'ouy'"),
        ({"seed": -1}, "seed=-1 must be at least 0"),
        ({"seed": 2**70}, "seed="),
        ({"seed": "x"}, "seed='x' is not a whole number"),
        ({"settings": 3}, "settings=3 is not a mapping"),
        ({"secure_sum": "none"}, "secure_sum='none' is unknown"),
    ],
)
def test_a_wrong_key_or_value_is_named(job: Job, change: dict, message: str) -> None:
    fields = {**json.loads(proposal_text(job)), **change}
    with pytest.raises(Refused) as caught:
        read_proposal(json.dumps(fields))
    assert caught.value.code is Refusal.REQUEST
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", "NaN", '{"seed": NaN}', '{"seed": 1, "seed": 2}', "[" * 10**5]
)
def test_what_is_no_proposal_is_refused(text: str) -> None:
    with pytest.raises(Refused) as caught:
        read_proposal(text)
    assert caught.value.code is Refusal.REQUEST


def test_another_version_is_refused(job: Job) -> None:
    """Its plans may count otherwise; the party runs what is installed at the party."""
    fields = json.loads(proposal_text(job))
    fields["version"] = "9.9.9"
    with pytest.raises(Refused, match=r"version='9.9.9'.*this party runs \d") as caught:
        read_proposal(json.dumps(fields))
    assert caught.value.code is Refusal.POLICY


def test_each_key_is_needed(job: Job) -> None:
    for key in (fields := json.loads(proposal_text(job))):
        rest = {name: value for name, value in fields.items() if name != key}
        with pytest.raises(Refused, match=f"states no {key}"):
            read_proposal(json.dumps(rest))


@pytest.mark.parametrize(
    ("section", "key", "value", "code"),
    [
        ("budget", "epsilon", -1, Refusal.REQUEST),
        ("budget", "epsilon", None, Refusal.REQUEST),
        ("budget", "unit", "houses", Refusal.REQUEST),
        ("budget", "budget", 1, Refusal.REQUEST),
        ("settings", "spcc", 3, Refusal.REQUEST),
        ("settings", "spc", "many", Refusal.REQUEST),
        ("scenario", "data_dir", "/etc", Refusal.REQUEST),
        ("scenario", "stages", "backwards", Refusal.REQUEST),
        ("scenario", "parties", 4, Refusal.POLICY),
        ("scenario", "data", "mnist", Refusal.POLICY),
    ],
)
def test_a_party_makes_no_job_of_wrong_sections(
    job: Job, section: str, key: str, value: Any, code: Refusal
) -> None:
    fields = json.loads(proposal_text(job))
    fields[section][key] = value
    with pytest.raises(Refused) as caught:
        party_job(policy_of(job), read_proposal(json.dumps(fields)))
    assert caught.value.code is code


def test_the_partys_own_side_enters_its_job(job: Job) -> None:
    policy = dataclasses.replace(policy_of(job), noise="seed:99", device="cuda:1")
    own = party_job(policy, read_proposal(proposal_text(job)))
    assert (own.noise_seed, own.device, own.out) == (99, "cuda:1", "")
    assert (own.method, own.settings, own.budget) == (job.method, job.settings, job.budget)


def test_the_partys_job_is_the_servers_but_for_what_is_its_own(tmp_path: Path) -> None:
    """The identity, on which noise and replays depend, is the same on both sides."""
    job = tiny.tiny_job("psg", tmp_path / "run")
    own = party_job(policy_of(job), read_proposal(proposal_text(job)))
    assert own.identity == job.identity
    assert own.plans == job.plans
    assert own.out == ""
