"""Jobs: what travels as text comes back equal; what makes two jobs the same."""

from __future__ import annotations

import dataclasses
import math

import pytest
from tiny_runs import tiny_job

from fedsynth.core.enums import SecureSum, StageOrder, Unit
from fedsynth.core.types import Budget
from fedsynth.experiment.job import Job
from fedsynth.privacy.accounting.accountant import epsilon


@pytest.fixture
def job(tmp_path) -> Job:
    """A tiny job of five parties' worth of fields, none at its default."""
    made = tiny_job("psg", tmp_path / "run", "together")
    return dataclasses.replace(made, noise_seed=3, secure_sum=SecureSum.SECAGG)


def test_a_job_comes_back_from_its_text(job):
    back = Job.parse(job.text())
    assert back == job
    assert back.text() == job.text()
    assert hash(back) == hash(job)
    assert back.scenario.stages is StageOrder.TOGETHER
    assert back.secure_sum is SecureSum.SECAGG
    assert back.budget.unit is Unit.RECORD
    assert back.config == job.config


def test_an_infinite_budget_comes_back_from_its_text(tmp_path):
    """JSON has no infinity; a reference without privacy needs one."""
    job = tiny_job("upper_bound", tmp_path)
    free = dataclasses.replace(job, budget=Budget(math.inf, 1e-5))
    assert Job.parse(free.text()).budget.epsilon == math.inf


SAME = {
    "out": lambda job: {"out": job.out + "-moved"},
    "evaluation": lambda job: {"evaluation": dataclasses.replace(job.evaluation, width=64)},
    "secure sum": lambda _: {"secure_sum": SecureSum.IDEAL},
    "data folder": lambda job: {"scenario": dataclasses.replace(job.scenario, data_dir="/x")},
}
OTHER = {
    "method": lambda _: {"method": "dp_merf", "settings": {}},
    "settings": lambda job: {"settings": {**job.settings, "spc": 7}},
    "budget": lambda job: {"budget": dataclasses.replace(job.budget, epsilon=3.0)},
    "unit": lambda job: {"budget": dataclasses.replace(job.budget, unit=Unit.USER)},
    "seed": lambda _: {"seed": 5},
    "noise seed": lambda _: {"noise_seed": 4},
    "no noise seed": lambda _: {"noise_seed": None},
    "partition": lambda job: {"scenario": dataclasses.replace(job.scenario, partition_seed=9)},
    "stages": lambda job: {"scenario": dataclasses.replace(job.scenario, stages="in_turn")},
}


@pytest.mark.parametrize("change", SAME.values(), ids=list(SAME))
def test_the_identity_leaves_out_what_no_release_depends_on(job, change):
    """Else a run that is moved, or judged otherwise, would draw other noise and pay again."""
    assert dataclasses.replace(job, **change(job)).identity == job.identity


@pytest.mark.parametrize("change", OTHER.values(), ids=list(OTHER))
def test_the_identity_holds_what_a_release_depends_on(job, change):
    """Else two different functions of the records would be given the same noise."""
    assert dataclasses.replace(job, **change(job)).identity != job.identity


def test_parties_and_jobs_have_folders_of_their_own(job):
    others = [job, *(dataclasses.replace(job, **OTHER[name](job)) for name in ("budget", "seed"))]
    folders = {other.party_folder(party) for other in others for party in range(3)}
    folders |= {other.server_folder() for other in others}
    assert len(folders) == 3 * (3 + 1)
    assert len({other.progress_folder() for other in others}) == 1  # the messages of a run
    assert len({job.dropout_file(stage) for stage in range(4)}) == 4


def test_equal_jobs_share_their_plans(job):
    """A plan may take a second, and every answer of a party needs it."""
    assert Job.parse(job.text()).plan(0) is dataclasses.replace(job).plan(0)
    assert job.plans == (job.plan(0),)


def test_the_published_epsilon_is_by_the_convention_of_the_method(job):
    event = job.plan(0).parties[0].event
    convention = job.method_impl.paper_convention
    assert job.paper_epsilon(event) == epsilon(event, job.budget.delta, convention)
