"""Parties that drop out in the middle: who can go on does, and nothing spent is forgotten."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakes
import pytest
import tiny_runs as tiny

from fedsynth.core.messages import Release, Request
from fedsynth.engine.client_app import Node
from fedsynth.engine.messages import PartyLost, PartyTimeout
from fedsynth.engine.server_app import Ask, Compute, StageCallback
from fedsynth.experiment import server_session
from fedsynth.experiment.flower_apps import answer_request, open_job_engine, serve_job
from fedsynth.experiment.job import Job
from fedsynth.experiment.proposal import read_proposal
from fedsynth.experiment.server_session import dropout_notes
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.ledger import read_entries, total
from fedsynth.privacy.secagg.protocol import COLLECT, SHARE, UNMASK
from fedsynth.storage import checkpoint
from fedsynth.storage.run_directory import RunDirectory

CALLS = {"psg_joint": 8, "ndpdc_joint": 4, "datalens": 4}  # rounds of the tiny runs


class Crash(BaseException):
    """The process is gone."""


def lossy(ask: Ask, lost: Callable[[int, Request], bool]) -> Ask:
    """Parties that are lost do not answer, as if they were killed or hung."""

    def asking(who: Any, stage: int, request: Any, missing: Any = None) -> list[Release]:
        of = request if isinstance(request, dict) else dict.fromkeys(who, request)
        away = [p for p in who if lost(p, of[p])]
        there = {p: of[p] for p in who if p not in away}
        answers = ask(list(there), stage, there, missing)
        if away and missing is None:
            raise PartyTimeout(f"party {away[0]} did not answer", away[0])
        for party in away:
            missing[party] = f"party {party} did not answer"
        return answers

    return asking


def run(job: Job, lost: Callable[[int, Request], bool]) -> None:
    """All releases of a job in this process, with parties that are lost."""

    def serve(text: str, ask: Ask, on_stage: StageCallback, _: Compute) -> None:
        serve_job(text, lossy(ask, lost), on_stage)

    with open_job_engine("inprocess", serve=serve) as engine:
        tiny.release(job, engine)


def job_of(out: Path, name: str, **changes: Any) -> Job:
    way = changes.pop("secure_sum", "ideal")
    job = tiny.tiny_job(name, out, "together", changes)
    return dataclasses.replace(job, secure_sum=way)


def spent(job: Job, party: int) -> Any:
    return flatten(total(read_entries(job.party_folder(party) / "ledger.jsonl")))


def released(job: Job) -> bool:
    return RunDirectory(Path(job.out)).releases.exists(job.name, 1)


def from_round(first: int, party: int = 2) -> Callable[[int, Request], bool]:
    return lambda who, request: who == party and request.round >= first


@pytest.mark.parametrize("noise_at", ["party", "aggregate", "distributed"])
@pytest.mark.parametrize("name", CALLS)
def test_the_others_go_on_and_the_ledger_keeps_what_was_spent(tmp_path, name, noise_at):
    job = job_of(tmp_path / "run", name, noise_at=noise_at, min_answers=2)
    run(job, from_round(1))
    assert released(job)
    (event,) = spent(job, 2)
    assert spent(job, 2)[event] == 1
    for party in (0, 1):
        assert spent(job, party) == flatten(job.plan(0).of(party).event) == {event: CALLS[name]}
    (note,) = dropout_notes(job)
    assert "stage 1: party 2 dropped out (missing since" in note
    assert "round 1 of stage 1: party 2 did not answer" in note


@pytest.mark.parametrize("noise_at", ["party", "aggregate", "distributed"])
def test_without_leave_to_be_missing_the_round_ends_the_run(tmp_path, noise_at):
    job = job_of(tmp_path / "run", "ndpdc_joint", noise_at=noise_at)
    with pytest.raises((PartyTimeout, PartyLost), match="party 2 did not answer"):
        run(job, from_round(1))
    assert not released(job)
    assert sum(spent(job, 2).values()) == 1
    assert sum(spent(job, 0).values()) == 2


def test_noise_of_too_few_shares_is_no_sum(tmp_path):
    """Three parties, two must answer, two are lost: the sum of one is never formed."""
    job = job_of(tmp_path / "run", "ndpdc_joint", noise_at="distributed", min_answers=2)
    text = r"1 of 3 parties answered, and the noise consists of at least 2 shares"
    with pytest.raises(PartyLost, match=text):
        run(job, lambda party, request: party != 0 and request.round >= 1)
    assert not released(job)


@pytest.mark.parametrize("stage", [SHARE, COLLECT, UNMASK])
def test_a_secure_sum_survives_a_loss_at_any_of_its_stages(tmp_path, stage):
    """Two of three open the masks; a party lost at the unmasking is in this sum and in no other."""

    def lost(party: int, request: Request) -> bool:
        return party == 2 and (request.kind == stage or request.round >= 2) and request.round >= 1

    changes = {"noise_at": "distributed", "min_answers": 2}
    secure = job_of(tmp_path / "a", "ndpdc_joint", secure_sum="secagg", **changes)
    run(secure, lost)
    first = 2 if stage == UNMASK else 1
    ideal = job_of(tmp_path / "b", "ndpdc_joint", **changes)
    run(ideal, from_round(first))
    theirs = releases(ideal)
    assert releases(secure) == theirs
    assert sum(spent(secure, 2).values()) == (1 if stage in (SHARE, COLLECT) else 2)


def releases(job: Job) -> dict[str, bytes]:
    return {k: v for k, v in tiny.outputs(job.out).items() if k.endswith(".npz")}


@pytest.mark.parametrize("way", ["ideal", "secagg"])
@pytest.mark.parametrize("crash_at", [1, 3])
def test_a_server_that_crashes_continues_without_the_dropped_parties(
    tmp_path, monkeypatch, way, crash_at
):
    """Even if the party is back by then: the same questions get the same answers."""
    changes = {"noise_at": "distributed", "min_answers": 2, "secure_sum": way}
    whole = job_of(tmp_path / "a", "ndpdc_joint", **changes)
    run(whole, from_round(1))
    monkeypatch.setattr(
        server_session, "rounds", functools.partial(checkpoint.rounds, every_seconds=0)
    )
    job = job_of(tmp_path / "b", "ndpdc_joint", **changes)

    def crash_after_the_sum(job_text: str, ask: Ask, on_stage: StageCallback, _: Compute) -> None:
        real = server_session.StageConnection.ask_sum

        def ask_sum(parties: Any, who: Any, request: Request, **named: Any) -> Any:
            answer = real(parties, who, request, **named)
            if request.round == crash_at:
                raise Crash
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server_session.StageConnection, "ask_sum", ask_sum)
            serve_job(job_text, lossy(ask, from_round(1)), on_stage)

    with (
        open_job_engine("inprocess", serve=crash_after_the_sum) as engine,
        pytest.raises(Crash),
    ):
        tiny.release(job, engine)
    run(job, lambda *_: False)
    assert tiny.outputs(job.out) == tiny.outputs(whole.out)


def mishap(text: str, node: Node, stage: int, request: Request) -> Release:
    """With seed 1: party 1 hangs from its second answer on, 3 kills its process at the third."""
    if read_proposal(text).seed == 1:
        if node.party == 1 and request.round >= 1:
            time.sleep(600)
        if node.party == 3 and request.round >= 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return answer_request(text, node, stage, request)


def test_killed_and_hung_parties_of_real_workers(tmp_path):
    """The round ends by its timeout, the others' answers are used, and all is as in one process."""
    scenario = dataclasses.replace(tiny.SCENARIOS["together"], parties=5)
    warm = dataclasses.replace(
        job_of(tmp_path / "warm", "ndpdc_joint", noise_at="distributed", min_answers=3),
        scenario=scenario,
    )
    job = dataclasses.replace(warm, seed=1, out=str(tmp_path / "ray"))
    with open_job_engine("ray", workers=2, num_cpus=0, answer=mishap) as engine:
        tiny.release(warm, engine)  # the workers are up: what follows is not their start
        engine._pool._timeout = 8.0  # type: ignore[attr-defined]
        tiny.release(job, engine)
    assert dropout_notes(warm) == []
    first, second = dropout_notes(job)
    assert "party 1 dropped out" in first
    assert "round 1 of stage 1: party 1 did not answer within timeout=8 s" in first
    assert "round 2 of stage 1: the worker of party 3 died 3 times" in second
    same = dataclasses.replace(job, out=str(tmp_path / "here"))
    run(same, lambda p, request: (p == 1 and request.round >= 1) or (p == 3 and request.round >= 2))
    assert releases(job) == releases(same)
    assert spent(job, 0) == spent(same, 0)


def test_a_lost_party_is_left_out_and_the_others_answers_are_theirs(ray_stage, local_stage):
    """At the level of one question: hung in a batch, its neighbours are asked once more."""
    ray_stage.ask_all([0, 1], rounds=1)  # both workers are up
    heard: list[Release] = []
    missing: dict[int, str] = {}
    pool = ray_stage.engine._pool

    def part(ask: Ask) -> None:
        heard.extend(ask([0, 1, 2, 3], 2, Request(), missing))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "_timeout", 5.0)
        ray_stage.play(part, mishap={"2": "hang", "3": "die"})
    assert sorted(missing) == [2, 3]
    assert "timeout=5 s" in missing[2]
    assert "died 3 times" in missing[3]
    expected: list[Release] = []
    local_stage.play(lambda ask: expected.extend(ask([0, 1], 2, Request())))
    assert fakes.plain(heard) == fakes.plain(expected)
