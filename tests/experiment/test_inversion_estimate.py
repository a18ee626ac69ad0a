"""A run with inverted users from plan to metrics: the estimate, the truth, and crashes."""

import csv
import dataclasses
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch
from instruments import Crash, Fuse
from made_users import USERS, forget, world_of_users

from fedsynth.api.progress import Progress
from fedsynth.core.randomness import numpy_generator
from fedsynth.core.types import Budget
from fedsynth.evaluation.inversion_detector import detect_inversion, interpolate_share
from fedsynth.experiment import client_session, server_session, user_partition
from fedsynth.experiment.inversion_estimate import EXTENSION
from fedsynth.experiment.job import Job
from fedsynth.experiment.runner import Runner
from fedsynth.methods.registry import method
from fedsynth.privacy.ledger import read_charges
from fedsynth.storage.run_directory import RunDirectory


@pytest.fixture
def people(monkeypatch, tmp_path):
    """A scenario of made-up users."""
    yield from world_of_users(monkeypatch, tmp_path / "data")


def a_job(scenario, out: Path, **options) -> Job:
    """A tiny job of GS-WGAN's, which protects users."""
    scenario = dataclasses.replace(scenario, parties=6, options={**scenario.options, **options})
    settings = tiny.tiny_settings(method("gs_wgan"), {"subsets": 1, "steps": 3})
    budget = Budget(10.0, 1e-3, "user", accounting="rdp")
    settled = user_partition.resolve_source(scenario)[0]
    return Job(
        "gs_wgan", settings, budget, 0, settled, tiny.EVALUATION["image"], str(out), noise_seed=7
    )


def metrics_of(folder: Path) -> dict[str, float]:
    with (folder / "metrics.csv").open(newline="") as file:
        return {row["metric"]: float(row["value"]) for row in csv.DictReader(file)}


@pytest.mark.parametrize("joins", ["public", "hidden"])
def test_a_run_tells_the_estimate_and_the_truth(people, here, tmp_path, joins):
    job = a_job(people, tmp_path / "run", joins=joins)
    run = tiny.release_and_judge([job], here, [EXTENSION])
    found = metrics_of(run.path)
    willing = dataclasses.replace(people, options={**people.options, "joins": "public"})
    chosen = set(user_partition._selected(willing).parties.tolist())
    mine = [u for u in user_partition._selected(job.scenario).parties.tolist() if u in chosen]
    coins = numpy_generator(job.scenario.partition_seed, "flip").random(USERS)
    truth = sum(coins[user] < 0.5 for user in mine)
    assert found["users_heard_true"] == len(mine) > 0
    assert found["affected_users_true"] == truth > 0
    assert found["affected_share_true"] == pytest.approx(truth / len(mine))
    seen = detect_inversion(run.releases.load(job.name, 1), job.plan(0).stage.data)
    assert found["inverted_share"] == pytest.approx(seen.share_by_edges)
    assert found["inverted_share_brightness"] == pytest.approx(seen.share_by_brightness)
    assert found["inverted_told"] == pytest.approx(seen.decided)
    ends = [found[f"rehearsal_edge_{name}"] for name in ("upright", "inverted")]
    share = interpolate_share(seen.edge, *ends)
    assert found.get("inverted_share_rehearsed") == (
        share if share is None else pytest.approx(share)
    )
    known = share is not None or seen.reliable
    assert ("affected_users" in found) == (joins == "public" and known)
    assert not list(run.path.rglob("*rehearsal*")), "a rehearsal leaves nothing but its numbers"
    for party in range(job.scenario.parties):
        spent = read_charges(job.party_folder(party) / "ledger.jsonl")
        assert len(spent) == job.plan(0).of(party).steps


@pytest.mark.parametrize(("joins", "written"), [("public", True), ("hidden", False)])
def test_hidden_participation_stays_hidden_where_noise_is_real(
    people, here, tmp_path, joins, written
):
    job = dataclasses.replace(a_job(people, tmp_path / "run", joins=joins), noise_seed=None)
    some = not written and user_partition.contributing_parties(job.scenario).all()
    assert not some, "the hidden case needs a user who stays away"
    found = metrics_of(tiny.release_and_judge([job], here, [EXTENSION]).path)
    truths = {"users_heard_true", "affected_users_true", "affected_share_true"}
    assert truths & set(found) == (truths if written else set())


def test_a_world_without_a_fault_has_nothing_to_tell(people, here, tmp_path):
    job = a_job(people, tmp_path / "run", flip=0)
    run = tiny.release_and_judge([job], here, [EXTENSION])
    assert not [name for name in metrics_of(run.path) if "inverted" in name or "affected" in name]


def test_the_silent_answer_with_noise_alone(people, here, tmp_path, monkeypatch):
    """The gradients of parties that were not selected are zero, and only theirs."""
    before_noise: dict[int, list[torch.Tensor]] = {}
    add = client_session.Guard._add_noise

    def watched(guard, bounded, **named):
        before_noise.setdefault(guard._plan.party, []).extend(v.clone() for v in bounded.values)
        return add(guard, bounded, **named)

    monkeypatch.setattr(client_session.Guard, "_add_noise", watched)
    job = a_job(people, tmp_path / "run", joins="hidden")
    tiny.release(job, here)
    heard = user_partition.contributing_parties(job.scenario)
    assert before_noise
    assert len({bool(heard[party]) for party in before_noise}) == 2
    for party, rows in before_noise.items():
        assert any(bool(row.any()) for row in rows) == heard[party]


@pytest.fixture
def saved_every_round(monkeypatch) -> None:
    """Checkpoints after every round, not every ten seconds."""
    once = server_session.rounds
    monkeypatch.setattr(server_session, "rounds", lambda *a, **k: once(*a, **k, every_seconds=0))


def carry_out(job: Job, engine) -> None:
    """A run to its end, from wherever it was left, by a process that knows nothing of it."""
    tiny.forget()
    forget()
    run = RunDirectory(Path(job.out))
    with Progress(silent=True) as progress:
        Runner(run, engine, progress, [EXTENSION]).execute([job], 1)
    run.compact_metrics()


@pytest.mark.usefixtures("saved_every_round")
@pytest.mark.parametrize("moment", [0.2, 0.7])
def test_a_crash_changes_neither_the_choice_nor_a_bit(people, here, tmp_path, moment):
    """In the release or in a rehearsal. Whoever goes on has forgotten who takes part, and finds the
    same out anew."""
    with pytest.MonkeyPatch.context() as patch:
        fuse = Fuse(patch)
        carry_out(a_job(people, tmp_path / "whole"), here)
    with pytest.MonkeyPatch.context() as patch:
        Fuse(patch, at=round(moment * fuse.count))
        with pytest.raises(Crash):
            carry_out(a_job(people, tmp_path / "crashed"), here)
    for path in Path(people.data_dir).glob("deployed/*.json"):
        path.unlink()
    forget()
    carry_out(a_job(people, tmp_path / "crashed"), here)
    assert tiny.outputs(tmp_path / "crashed") == tiny.outputs(tmp_path / "whole")
