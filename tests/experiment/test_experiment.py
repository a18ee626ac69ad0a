"""The experiment: jobs and plans of a run, computed once."""

from __future__ import annotations

from unittest import mock

import pytest

from fedsynth.core.errors import UserError
from fedsynth.experiment.config import ExperimentConfig, resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.warnings import warnings
from fedsynth.methods.registry import method
from fedsynth.report.report_data import build_report_data

KEYS = {
    "scenario": "classification",
    "data": "shapes",
    "preset": "smoke",
    "accounting": "rdp",
    "delta": 1e-3,
}


def config(**keys: object) -> ExperimentConfig:
    return resolve({**KEYS, "method": ["psg", "upper_bound"], "epsilon": [1, 10], **keys})


def test_a_job_per_method_budget_and_seed_and_one_budget_for_a_reference() -> None:
    experiment = Experiment.of(config(seed=[0, 1]), "folder")
    names = {job.name for job in experiment.jobs}
    assert len(names) == len(experiment.jobs) == 2 * (2 + 1)
    assert {job.out for job in experiment.jobs} == {"folder"}
    assert {job.seed for job in experiment.first_seed_jobs} == {0}


def test_jobs_whose_stages_build_on_each_other_come_first() -> None:
    experiment = Experiment.of(config(scenario="split_mnist", method=["psg", "dp_sgd"]))
    inherits = [job.method_impl.inherits(job.config) for job in experiment.jobs]
    assert inherits == sorted(inherits, reverse=True)
    assert set(inherits) == {False, True}


def test_plans_are_computed_once_for_all_their_users() -> None:
    psg = type(method("psg"))
    with mock.patch.object(psg, "plan", autospec=True, side_effect=psg.plan) as plan:
        experiment = Experiment.of(config(method=["psg"], epsilon=[7.125]))
        computed = plan.call_count
        warnings(experiment)
        build_report_data(experiment, "", [])
        assert experiment.plans(experiment.jobs[0]) is experiment.plans(experiment.jobs[0])
    assert plan.call_count == computed == len(experiment.stages)


def test_a_job_that_cannot_be_planned_is_an_error_at_once() -> None:
    with (
        mock.patch.object(type(method("psg")), "plan", side_effect=UserError("no such plan")),
        pytest.raises(UserError, match="no such plan"),
    ):
        Experiment.of(config(method=["psg"], epsilon=[6.875]))
