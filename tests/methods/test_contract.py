"""What every method promises, tried on every method there is: drop one in and it is tested."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_runs as tiny
import torch
from contract_cases import CASES, Case, each_case, each_case_of_many, each_method, stages_of
from instruments import Crash, Fuse

from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.core.settings import build, describe
from fedsynth.data import registry as datasets
from fedsynth.experiment import server_session
from fedsynth.experiment.config import PRESETS
from fedsynth.experiment.job import Job, _plan
from fedsynth.methods.registry import method
from fedsynth.privacy import party_data as private_module
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.ledger import SLACK, read_entries, total
from fedsynth.storage import checkpoint
from fedsynth.storage.run_directory import RunDirectory

AUTO = "auto"


@pytest.fixture(scope="session")
def undisturbed(here, tmp_path_factory) -> Callable[..., tuple[Job, dict[str, bytes]]]:
    """All releases of a case, made in this process: the job and what it left."""
    made: dict[str, tuple[Job, dict[str, bytes]]] = {}

    def run(case: Case) -> tuple[Job, dict[str, bytes]]:
        if str(case) not in made:
            job = case.job(tmp_path_factory.mktemp(case.name) / "run")
            torch.manual_seed(len(made))
            np.random.seed(len(made))
            random.seed(len(made))
            before = global_randomness()
            tiny.release(job, here)
            assert global_randomness() == before, "a run drew from a global generator"
            made[str(case)] = job, tiny.outputs(job.out)
        return made[str(case)]

    return run


def global_randomness() -> tuple[object, ...]:
    """The state of every generator that is shared by everybody in a process."""
    state = np.random.get_state(legacy=True)
    return torch.get_rng_state().tolist(), state[1].tolist(), state[2], random.getstate()


# Before any data is read


@each_method
def test_settings_are_frozen_documented_and_within_their_own_limits(name):
    some = method(name)
    assert some.name == name
    assert some.summary
    assert "\n" not in some.summary
    defaults = build(some.Config, {})
    assert build(some.Config, dataclasses.asdict(defaults)) == defaults
    for key, default, about in describe(some.Config):
        assert about, f"{name}.{key} has no documentation"
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(defaults, key, default)
    assert set(some.presets) <= {*PRESETS, "test"}
    for preset in PRESETS:
        assert isinstance(build(some.Config, some.presets.get(preset, {})), some.Config)
    assert build(some.Config, some.presets.get("paper", {})) == defaults, "defaults are the paper's"


@each_case
def test_a_plan_reads_no_data_and_is_always_the_same(case, monkeypatch, tmp_path):
    def refuse(*_: object) -> None:
        raise AssertionError("data was read")

    for known in datasets._registry.values():
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
        for share in plan.parties:
            assert 0 < share.sampling_rate <= 1
            assert share.steps >= 1
            assert share.bytes_up > 0
            assert all(flatten(event) for event in share.views.values())
            assert job.method_impl.private == (share.noise_multiplier > 0)


@each_method
def test_a_plan_stays_within_the_budget_and_uses_it(name, tmp_path):
    """The noise is not wasted: what is planned costs nearly what is allowed."""
    for world in tiny.worlds(name):
        job = tiny.tiny_job(name, tmp_path, world, accounting="pld")
        costs = []
        for share in job.plan(0).parties:
            costs.append(epsilon(share.event, job.budget.delta, job.budget.accounting))
        assert max(costs) <= job.budget.epsilon * (1 + SLACK)
        assert max(costs) > 0.9 * min(job.budget.epsilon, 1e9)


# After a run


@each_case
def test_the_ledger_of_every_party_is_the_plan(case, undisturbed):
    job, _ = undisturbed(case)
    for stage in stages_of(job):
        for share in job.plan(stage).parties:
            entries = read_entries(job.party_folder(share.party) / "ledger.jsonl")
            mine = [entry for entry in entries if entry.stage == stage]
            assert flatten(total(mine)) == flatten(share.event)
            spent = epsilon(total(entries), job.budget.delta, job.budget.accounting)
            if job.method_impl.private:
                assert spent <= job.budget.epsilon * (1 + SLACK)
            else:
                assert spent == float("inf")
            assert {entry.noise for entry in entries} == {f"noise_seed={job.noise_seed}"}


@each_case
def test_outcomes_are_finite_and_of_the_right_form(case, undisturbed):
    job, _ = undisturbed(case)
    run = RunDirectory(Path(job.out))
    for stage in stages_of(job):
        this_stage = job.plan(stage).stage
        outcome = run.load_release(job.name, stage + 1)
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
def test_another_noise_seed_gives_another_release(name, here, undisturbed, tmp_path):
    """Without noise, as in the references, it gives the same."""
    case = Case(name, "in_turn")
    _, first = undisturbed(case)
    job = case.job(tmp_path / "run", noise_seed=8)
    tiny.release(job, here)
    other = tiny.outputs(job.out)
    assert set(other) == set(first)
    archives = [file for file in first if file.endswith(".npz")]
    assert all((first[file] != other[file]) == job.method_impl.private for file in archives)


def one_share(case: Case) -> bool:
    """The share of a party that is alone is all of the noise: the same as at the party."""
    return case.world == "in_turn" and case.changes.get("noise_at") == "distributed"


def alternatives(case: Case) -> list[Case]:
    """What a choice must differ from: the default; the other choices, where the default is to pick
    one of them by the data or the machine."""
    ((name, _),) = case.changes.items()
    if getattr(method(case.name).Config(), name) != AUTO:
        return [Case(case.name, case.world)]
    alike = (c for c in CASES if (c.name, c.world) == (case.name, case.world))
    return [other for other in alike if name in other.changes and other != case]


CHOICES = [c for c in CASES if c.changes and not one_share(c) and AUTO not in c.changes.values()]


@pytest.mark.parametrize("case", CHOICES, ids=str)
def test_every_choice_makes_a_difference(case, undisturbed):
    """A setting without an effect is a trap."""
    found = undisturbed(case)[1]
    assert all(found != undisturbed(other)[1] for other in alternatives(case))


# Crashes


@pytest.fixture
def saved_every_round(monkeypatch) -> None:
    """Checkpoints after every round, not every ten seconds."""

    def rounds(*arguments: Any, **named: Any) -> Iterator[int]:
        return checkpoint.rounds(*arguments, **named, every_seconds=0)

    monkeypatch.setattr(server_session, "rounds", rounds)
    monkeypatch.setattr(private_module, "rounds", rounds)


@pytest.mark.usefixtures("saved_every_round")
@each_case_of_many
def test_a_crash_at_any_moment_changes_nothing(case, here, undisturbed, tmp_path):
    """Two crashes one after the other, at moments drawn anew for every case."""
    _, expected = undisturbed(case)
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
                tiny.released_is_paid_for(job)
    tiny.release(job, here)
    assert tiny.outputs(job.out) == expected


# Engines


@each_case_of_many
def test_one_worker_equals_two_and_none(case, undisturbed, one_worker, two_workers, tmp_path):
    _, expected = undisturbed(case)
    engines = (one_worker, two_workers) if case.world == "together" else (two_workers,)
    for engine in engines:
        job = case.job(tmp_path / str(engine.workers))
        tiny.release(job, engine)
        assert tiny.outputs(job.out) == expected


def test_whole_runs_are_the_same_on_all_engines(here, two_workers, tmp_path):
    """With evaluation, books and the merged ledger: one method of each kind, side by side."""
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
