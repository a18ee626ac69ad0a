"""The reference of every private method: the same computation, no noise, marked as not private."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch
from contract_cases import PRIVATE
from real_party import POLICY, RealParty

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.messages import Request
from fedsynth.core.outcomes import ReleasedModel
from fedsynth.core.plan import SERVER_VIEW
from fedsynth.core.types import Budget
from fedsynth.engine.base import Engine
from fedsynth.experiment.job import Job
from fedsynth.experiment.proposal import proposal_text
from fedsynth.experiment.run_ledger import merged_ledger
from fedsynth.methods.registry import WITHOUT_NOISE, is_method, method, method_names
from fedsynth.methods.without_noise import noised_plan, with_its_noise
from fedsynth.privacy import guard as guard_module
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.ledger import read_entries, total
from fedsynth.storage.run_directory import RunDirectory

each_private_method = pytest.mark.parametrize("name", PRIVATE)


def reference_job(name: str, out: Path, noise_seed: int = 7) -> Job:
    scenario = "together" if name.endswith("_joint") else "in_turn"
    if DataKind.IMAGE not in method(name).kinds:
        scenario = "table"
    base = tiny.tiny_job(name, out, scenario, noise_seed=noise_seed)
    return dataclasses.replace(base, method=name + WITHOUT_NOISE, budget=Budget(math.inf, 1e-3))


@each_private_method
def test_a_reference_is_marked_in_its_plan(name, tmp_path):
    job = reference_job(name, tmp_path)
    some = job.method_impl
    assert (some.name, some.private) == (name + WITHOUT_NOISE, False)
    assert with_its_noise(some) is method(name)
    assert some.name not in method_names()
    assert "NOT private" in some.summary
    for plan in job.plans:
        assert plan.method == some.name
        assert any("NOT private" in warning for warning in plan.warnings)
        noised = noised_plan(plan)
        assert (noised.method, noised.rounds) == (name, plan.rounds)
        for mine, theirs in zip(plan.parties, noised.parties, strict=True):
            assert mine.without_noise
            assert mine.noise_multiplier == 0
            assert not mine.views
            assert mine.paper_event is None
            assert epsilon(mine.event, 1e-5) == job.paper_epsilon(mine.event) == math.inf
            assert (mine.steps, mine.sampling_rate) == (theirs.steps, theirs.sampling_rate)
            assert not theirs.without_noise
            assert theirs.noise_multiplier > 0


@each_private_method
def test_a_reference_draws_no_noise_and_its_ledger_says_infinity(name, here: Engine, tmp_path):
    """The only function that makes Gaussian noise is not called, and what is charged is the plan's
    event, which no finite budget pays for."""
    job = reference_job(name, tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard_module.NoiseKey, "stream", _without_gaussians(guard_module.NoiseKey))
        tiny.release(job, here)
    for stage, plan in enumerate(job.plans):
        for share in plan.parties:
            entries = read_entries(job.party_folder(share.party) / "ledger.jsonl")
            of_stage = [entry for entry in entries if entry.stage == stage]
            assert flatten(total(of_stage)) == flatten(share.event)
            assert epsilon(total(of_stage), 1e-5) == math.inf
            assert {entry.view for entry in entries} == {SERVER_VIEW.text}
            assert {entry.budget for entry in entries} == {math.inf}
        outcome = RunDirectory(Path(job.out)).releases.load(job.name, stage + 1)
        model = isinstance(outcome, ReleasedModel)
        values = outcome.state.values() if model else [outcome.pixels()]
        assert all(torch.isfinite(value).all() for value in values)
    assert f'"job":"{name}{WITHOUT_NOISE}-epsinf-seed0"' in merged_ledger([job])


def _without_gaussians(key):
    stream = key.stream

    def guarded(self, *purpose):
        made = stream(self, *purpose)
        made.rounded_gaussian = _refuse
        return made

    return guarded


def _refuse(*_: object) -> None:
    raise AssertionError("noise was drawn")


@pytest.mark.parametrize("placement", ["party", "aggregate", "distributed"])
def test_a_sum_without_noise_is_the_same_wherever_noise_would_be_added(
    placement, here: Engine, tmp_path
):
    """With a second noise seed too: dp_merf_joint samples no records."""
    found = []
    for number, where in enumerate(("party", placement)):
        job = reference_job("dp_merf_joint", tmp_path / str(number), noise_seed=number)
        job = dataclasses.replace(job, settings={**job.settings, "noise_at": where})
        tiny.release(job, here)
        found.append(RunDirectory(Path(job.out)).releases.load(job.name, 1).images)
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("", "", "method=psg_without_noise is not allowed here"),
        ("[private]", "[psg_without_noise]", "epsilon=inf is asked for"),
        ("[private]", "[psg_without_noise]\nlifetime_inf", "noise=none is for simulated parties"),
        ("[private]", "[psg_without_noise]\nlifetime_inf\nsimulation: true", ""),
    ],
)
def test_a_real_party_answers_without_noise_only_as_a_declared_simulation(
    old, new, words, tmp_path
):
    policy = POLICY.replace(old, new) if old else POLICY
    if "lifetime_inf" in policy:
        policy = policy.replace("\nlifetime_inf", "").replace("epsilon: 4", "epsilon: .inf")
        policy = policy.replace("job_epsilon: 2\n", "")
    party = RealParty(tmp_path / "party", policy)
    job = tiny.tiny_job("psg", tmp_path / "run", "together", accounting="pld")
    job = dataclasses.replace(job, method="psg" + WITHOUT_NOISE, budget=Budget(math.inf, 1e-3))
    reply = party.ask(proposal_text(job), Request(scalars={"seed": 0}))
    assert words in reply.text
    assert (reply.release is None) == bool(words)
    if words:
        assert not (tmp_path / "party" / "ledger.jsonl").exists()


def test_references_and_unknown_methods_have_no_reference():
    assert is_method("psg" + WITHOUT_NOISE)
    assert not is_method("psg" + 2 * WITHOUT_NOISE[:3])
    assert not is_method("nothing" + WITHOUT_NOISE)
    with pytest.raises(UserError, match=r"upper_bound is a reference and adds no noise"):
        method("upper_bound" + WITHOUT_NOISE)
    with pytest.raises(UserError, match="unknown method"):
        method("nothing" + WITHOUT_NOISE)
