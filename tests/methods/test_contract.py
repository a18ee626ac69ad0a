"""The contract of methods, tested on every method that is found."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_runs as tiny
import torch
from contract_cases import CASES, Case, each_case, each_method, each_of_fewer_cases, stages_of
from instruments import Crash, Fuse

from fedsynth.core.enums import Preset
from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.core.settings import build, choices_of, describe
from fedsynth.data import registry as datasets
from fedsynth.experiment.job import Job, _plan
from fedsynth.methods.common.noise_placement import JointMethod
from fedsynth.methods.registry import method
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.ledger import SLACK, read_entries, total
from fedsynth.storage.run_directory import RunDirectory

AUTO = "auto"


@pytest.fixture(scope="session")
def reference_run(here, tmp_path_factory) -> Callable[..., tuple[Job, dict[str, bytes]]]:
    """Runs a case in this process, once: the job and its output files."""
    runs: dict[str, tuple[Job, dict[str, bytes]]] = {}

    def run(case: Case) -> tuple[Job, dict[str, bytes]]:
        if str(case) not in runs:
            job = case.job(tmp_path_factory.mktemp(case.name) / "run")
            torch.manual_seed(len(runs))
            np.random.seed(len(runs))
            random.seed(len(runs))
            before = global_randomness()
            tiny.release(job, here)
            assert global_randomness() == before, "a run drew from a global generator"
            runs[str(case)] = job, tiny.outputs(job.out)
        return runs[str(case)]

    return run


def global_randomness() -> tuple[object, ...]:
    """The state of all global random generators."""
    state = np.random.get_state(legacy=True)
    return torch.get_rng_state().tolist(), state[1].tolist(), state[2], random.getstate()


# Before any data is read


@each_method
def test_settings_are_frozen_documented_and_within_their_limits(name):
    method_impl = method(name)
    assert method_impl.name == name
    assert method_impl.summary
    assert "\n" not in method_impl.summary
    defaults = build(method_impl.Config, {})
    assert build(method_impl.Config, dataclasses.asdict(defaults)) == defaults
    for key, default, about in describe(method_impl.Config):
        assert about, f"{name}.{key} has no documentation"
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(defaults, key, default)
    assert set(method_impl.presets) <= set(Preset)
    for preset in Preset:
        assert isinstance(
            build(method_impl.Config, method_impl.presets.get(preset, {})), method_impl.Config
        )
    assert build(method_impl.Config, method_impl.presets.get("paper", {})) == defaults, (
        "defaults are the paper's"
    )


@each_method
def test_every_choice_of_a_method_is_a_case(name):
    tiny_form = tiny.tiny_settings(method(name))
    expected = {
        (key, str(choice))
        for key, choices in choices_of(method(name).Config).items()
        for choice in choices
        if choice != tiny_form[key]
    }
    changes = [case.changes for case in CASES if case.name == name and case.scenario == "in_turn"]
    assert expected == {(key, str(v)) for change in changes for key, v in change.items()}
    if isinstance(method(name), JointMethod):
        assert expected >= {("noise_at", "aggregate"), ("noise_at", "distributed")}


@each_case
def test_a_plan_reads_no_data_and_is_deterministic(case, monkeypatch, tmp_path):
    def refuse(*_: object) -> None:
        raise AssertionError("data was read")

    for known in map(datasets.find, datasets.names()):
        monkeypatch.setitem(
            datasets._registry, known.name, dataclasses.replace(known, reader=refuse)
        )
    job = case.job(tmp_path)
    for stage in stages_of(job):
        plan = job.plan(stage)
        _plan.cache_clear()
        assert job.plan(stage) == plan
        assert plan.method == case.name
        assert [p.party for p in plan.parties] == [f.party for f in plan.stage.parties]
        assert [p.records for p in plan.parties] == [f.records for f in plan.stage.parties]
        for party_plan in plan.parties:
            assert 0 < party_plan.sampling_rate <= 1
            assert party_plan.steps >= 1
            assert party_plan.bytes_up > 0
            assert all(flatten(event) for event in party_plan.views.values())
            assert job.method_impl.private == (party_plan.noise_multiplier > 0)


@each_method
def test_a_plan_uses_at_least_nine_tenths_of_the_budget(name, tmp_path):
    """Otherwise it would add more noise than needed."""
    for scenario in tiny.scenarios_of(name):
        job = tiny.tiny_job(name, tmp_path, scenario, accounting="pld")
        costs = []
        for party_plan in job.plan(0).parties:
            costs.append(epsilon(party_plan.event, job.budget.delta, job.budget.accounting))
        assert max(costs) <= job.budget.epsilon * (1 + SLACK)
        assert max(costs) > 0.9 * min(job.budget.epsilon, 1e9)


# After a run


@each_case
def test_the_ledger_of_each_party_matches_the_plan(case, reference_run):
    job, _ = reference_run(case)
    for stage in stages_of(job):
        for party_plan in job.plan(stage).parties:
            entries = read_entries(job.party_folder(party_plan.party) / "ledger.jsonl")
            of_stage = [entry for entry in entries if entry.stage == stage]
            assert flatten(total(of_stage)) == flatten(party_plan.event)
            budget = job.budget
            spent = epsilon(total(entries), budget.delta, budget.accounting, budget.relation)
            if job.method_impl.private:
                assert spent <= job.budget.epsilon * (1 + SLACK)
            else:
                assert spent == float("inf")
            assert {entry.noise for entry in entries} == {f"noise_seed={job.noise_seed}"}


@each_case
def test_outcomes_are_finite_and_have_the_right_shape(case, reference_run):
    job, _ = reference_run(case)
    run = RunDirectory(Path(job.out))
    for stage in stages_of(job):
        this_stage = job.plan(stage).stage
        outcome = run.releases.load(job.name, stage + 1)
        if isinstance(outcome, ReleasedModel):
            assert all(torch.isfinite(value).all() for value in outcome.state.values())
            continue
        assert isinstance(outcome, SyntheticSet)
        assert outcome.images.shape == (len(outcome.labels), *this_stage.data.shape)
        assert outcome.labels.dtype == torch.int64
        assert set(outcome.labels.tolist()) == set(this_stage.classes)
        assert outcome.images.dtype in (torch.float32, torch.uint8)
        assert not (job.method_impl.private and list(run.path.glob("disclosed/**/*.npz")))
        assert torch.isfinite(outcome.pixels()).all()


@each_method
def test_another_noise_seed_gives_another_release_of_private_methods(
    name, here, reference_run, tmp_path
):
    """References have no noise and give the same."""
    case = Case(name, tiny.scenarios_of(name)[0])
    _, first = reference_run(case)
    job = case.job(tmp_path / "run", noise_seed=8)
    tiny.release(job, here)
    other = tiny.outputs(job.out)
    assert set(other) == set(first)
    archives = [file for file in first if file.endswith(".npz")]
    assert all((first[file] != other[file]) == job.method_impl.private for file in archives)


def has_one_share(case: Case) -> bool:
    """True if a stage has a single party, whose share is all of the noise."""
    return case.scenario == "in_turn" and case.changes.get("noise_at") == "distributed"


def alternatives(case: Case) -> list[Case]:
    """The cases whose output must differ: the default, or all other choices if the default selects
    one of them automatically."""
    ((name, _),) = case.changes.items()
    if getattr(method(case.name).Config(), name) != AUTO:
        return [Case(case.name, case.scenario)]
    alike = (c for c in CASES if (c.name, c.scenario) == (case.name, case.scenario))
    return [other for other in alike if name in other.changes and other != case]


CHOICES = [
    c for c in CASES if c.changes and not has_one_share(c) and AUTO not in c.changes.values()
]


@pytest.mark.parametrize("case", CHOICES, ids=str)
def test_every_choice_changes_the_output(case, reference_run):
    """A setting without an effect would mislead."""
    found = reference_run(case)[1]
    assert all(found != reference_run(other)[1] for other in alternatives(case))


# Crashes


@pytest.mark.usefixtures("checkpoint_every_round")
@each_of_fewer_cases
def test_crashes_change_no_output(case, here, reference_run, tmp_path):
    """Two crashes one after the other, at times drawn per case."""
    _, expected = reference_run(case)
    with pytest.MonkeyPatch.context() as patch:
        fuse = Fuse(patch)
        tiny.release(case.job(tmp_path / "whole"), here)
    job = case.job(tmp_path / "crashed")
    moments = random.Random(str(case))
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            Fuse(patch, at=moments.randint(1, fuse.count))
            try:
                tiny.release(job, here)
            except Crash:
                tiny.assert_releases_are_charged(job)
    tiny.release(job, here)
    assert tiny.outputs(job.out) == expected


# Engines


@each_of_fewer_cases
def test_the_output_does_not_depend_on_the_number_of_workers(
    case, reference_run, one_worker, two_workers, tmp_path
):
    _, expected = reference_run(case)
    engines = (one_worker, two_workers) if case.scenario == "together" else (two_workers,)
    for engine in engines:
        job = case.job(tmp_path / str(engine.workers))
        tiny.release(job, engine)
        assert tiny.outputs(job.out) == expected


def test_whole_runs_are_equal_on_all_engines(here, two_workers, tmp_path):
    """With evaluation, metrics and the merged ledger: one method of each kind at the same time."""
    found = []
    for engine in (here, two_workers):
        out = tmp_path / str(len(found))
        kinds = ("psg", "psg_joint", "dp_sgd", "upper_bound")
        before = global_randomness()
        tiny.release_and_judge([tiny.tiny_job(name, out) for name in kinds], engine)
        assert global_randomness() == before
        found.append(tiny.outputs(out))
    assert found[0] == found[1]
    assert not any(name.startswith("disclosed/") for name in found[0])
    assert b",accuracy," in found[0]["metrics.csv"]
