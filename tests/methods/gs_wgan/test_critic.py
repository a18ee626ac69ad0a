"""Critics on a party's disk: repeated requests, lost files, refusal, and reuse in later runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Request
from fedsynth.experiment import party_extracts
from fedsynth.methods.common.generator_release import state_vector
from fedsynth.methods.gs_wgan.config import images_key
from fedsynth.methods.gs_wgan.critic import Critic
from fedsynth.methods.gs_wgan.generator import new_generator
from fedsynth.methods.gs_wgan.gs_wgan import VISIT, WARM
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.ledger import SLACK, BudgetExceeded, read_entries, total


@pytest.fixture
def job(tmp_path):
    tiny.forget()
    made = tiny.tiny_job("gs_wgan", tmp_path / "run", "together")
    yield made
    tiny.forget()


def ask(job, party: int, request: Request):
    """The answer to one request by a freshly started process."""
    tiny.forget()
    return tiny.answer(job, party, 0, request)


def turn_request(job, number: int, seed: int = 0) -> Request:
    stage, cfg = job.plan(0).stage, job.config
    net = new_generator(
        cfg.generator, cfg.depth, cfg.latent, len(stage.classes), stage.data, seed, number
    )
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand((cfg.batch, *stage.data.shape), generator=generator)
    arrays = {images_key(turn): images for turn in cfg.schedule(stage).rounds[number]}
    return Request(VISIT, number, {"theta": state_vector(net), **arrays}, {"seed": 0})


def rounds_of(job, party: int) -> list[int]:
    schedule = job.config.schedule(job.plan(0).stage)
    return [n for n in range(job.config.steps) if schedule.turns_in_round(n, party)]


def critics(job, party: int) -> Path:
    return job.work_folder(job.party_folder(party), 0) / "critics"


def test_a_repeated_request_gets_the_same_gradients_after_later_turns(job):
    party, (first, second, *_) = next(
        (p, rounds) for p in range(3) if len(rounds := rounds_of(job, p)) > 1
    )
    known = ask(job, party, turn_request(job, first))
    ask(job, party, turn_request(job, second))
    again = ask(job, party, turn_request(job, first))
    assert torch.equal(known.arrays["gradients"], again.arrays["gradients"])
    assert known.entries == again.entries


def test_lost_files_are_refused_if_noise_would_be_reused(job):
    schedule = job.config.schedule(job.plan(0).stage)
    number, late = next(
        (n, v) for n, visits in enumerate(schedule.rounds) for v in visits if v.number == 1
    )
    first = next(
        n
        for n in range(number)
        for v in schedule.turns_in_round(n, late.party)
        if v.subset == late.subset
    )
    ask(job, late.party, turn_request(job, first))
    for file in critics(job, late.party).glob("*"):
        file.unlink()
    with pytest.raises(UserError, match="trained for 0 turns"):
        ask(job, late.party, turn_request(job, number))
    ask(job, late.party, turn_request(job, first))
    for file in critics(job, late.party).glob("*-visit-*"):
        file.unlink()
    ask(job, late.party, turn_request(job, first))  # computed again from the same critic
    ask(job, late.party, turn_request(job, number))
    for file in critics(job, late.party).glob("*-visit-*"):
        file.unlink()
    with pytest.raises(UserError, match="was trained further"):
        ask(job, late.party, turn_request(job, first))


def test_different_requests_for_a_turn_are_charged_until_the_budget_is_spent(job):
    (first, *_) = rounds_of(job, 1)

    def ask_for_many_generators() -> None:
        for seed in range(20):
            ask(job, 1, turn_request(job, first, seed))

    with pytest.raises(BudgetExceeded):
        ask_for_many_generators()
    spent = total(read_entries(job.party_folder(1) / "ledger.jsonl"))
    assert epsilon(spent, job.budget.delta, "rdp") <= job.budget.epsilon * (1 + SLACK)


def test_critics_lie_in_a_private_folder_until_they_are_destroyed(job, here):
    tiny.release(job, here)
    files = list(critics(job, 0).iterdir())
    assert files
    assert critics(job, 0).stat().st_mode & 0o777 == 0o700
    party_extracts.destroy_keys(job)
    assert not list(critics(job, 0).iterdir())


def test_a_warm_start_releases_nothing_and_costs_nothing(job):
    answer = ask(job, 0, Request(WARM, 0, scalars={"seed": 0}))
    assert (answer.arrays, answer.scalars, answer.entries) == ({}, {}, ())
    assert not (job.party_folder(0) / "ledger.jsonl").exists()


@pytest.mark.usefixtures("no_noise")
def test_a_second_run_reuses_the_warm_critics_and_releases_the_same(here, tmp_path, monkeypatch):
    """So does one with another budget, on which warm critics do not depend; one with other settings
    does not. Noise is left out, because it depends on all settings."""
    warmed: list[object] = []
    real = Critic.warm_up

    def counted(critic: Critic, *arguments) -> None:
        warmed.append(critic.key)
        real(critic, *arguments)

    monkeypatch.setattr(Critic, "warm_up", counted)

    def run(name: str, epsilon: float = 10.0, **changes):
        made = tiny.tiny_job("gs_wgan", tmp_path / name, "together", changes)
        scenario = replace(made.scenario, data_dir=str(tmp_path / "data"))
        made = replace(made, scenario=scenario, budget=replace(made.budget, epsilon=epsilon))
        tiny.release(made, here)
        return {k: v for k, v in tiny.outputs(made.out).items() if k.endswith(".npz")}

    alone = run("alone")
    first_time = len(warmed)
    assert first_time == 3  # each of three parties has a subset
    kept = run("kept", keep=True)
    assert len(warmed) == 2 * first_time
    again = run("again", keep=True)
    run("another budget", 1.0, keep=True)
    assert len(warmed) == 2 * first_time
    assert alone == kept == again
    run("warmer", keep=True, warm_steps=3)
    assert len(warmed) == 3 * first_time
    for party in (tmp_path / "data" / "private").iterdir():
        assert party.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("sent", [None, (8, 1, 28, 28), (4, 3, 28, 28)])
def test_images_of_another_shape_are_refused_before_anything_is_charged(job, sent):
    """The number of images decides the sensitivity, so the server cannot choose it."""
    assert job.config.batch == 4
    number = rounds_of(job, 0)[0]
    request = turn_request(job, number)
    for key in [key for key in request.arrays if key.startswith("images")]:
        if sent is None:
            del request.arrays[key]
        else:
            request.arrays[key] = torch.rand(sent)
    with pytest.raises(UserError, match="needs the array 'images-"):
        ask(job, 0, request)
    assert not (job.party_folder(0) / "ledger.jsonl").exists()
