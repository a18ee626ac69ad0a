"""The Ray engine: the same bits as in one process, through deaths, hangs and crowds."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import fakes
import psutil
import pytest

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Request
from fedsynth.engine.base import NodeSetup
from fedsynth.engine.messages import PartyFailed, PartyLost, PartyRefused, PartyTimeout
from fedsynth.engine.ray.grid import RayGrid
from fedsynth.experiment.flower_apps import open_job_engine


@pytest.fixture
def impatient(ray_stage, monkeypatch):
    """A much shorter timeout on the shared engine."""
    monkeypatch.setattr(ray_stage.engine._pool, "_timeout", 3.0)
    return ray_stage


def raise_user_error() -> None:
    raise UserError("key=3 is not allowed")


def die_once(flag: str) -> str:
    if not os.path.exists(flag):
        open(flag, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("parties", [[0], [3, 1, 0], [0, 2]])
@pytest.mark.parametrize("size", [5, 60_000])
def test_bit_identical_to_one_process(ray_stage, local_stage, parties, size):
    """The whole content, in order, for lone parties and crowds, small and out-of-band messages."""
    here = local_stage.ask_all(parties, size=size)
    there = ray_stage.ask_all(parties, size=size)
    assert fakes.same(here, there)
    assert {release.scalars["threads"] for release in there} == {1}


def test_errors_of_parties_arrive_as_in_one_process(ray_stage):
    """Text of refusals, only types of everything else; the engine goes on afterwards."""
    with pytest.raises(PartyRefused, match=r"party 2 refused \(budget\): the budget"):
        ray_stage.ask_all([0, 2], mishap={"2": "no"})
    with pytest.raises(PartyFailed, match="party 1 failed: internal;") as caught:
        ray_stage.ask_all([0, 1], mishap={"1": "secret"})
    assert "4711" not in str(caught.value)
    assert len(ray_stage.ask_all([0, 1], rounds=1)) == 2


@pytest.mark.parametrize("parties", [[1], [0, 1, 2, 3]])
def test_a_killed_worker_is_replaced_and_the_answer_is_the_same(
    ray_stage, local_stage, tmp_path, parties
):
    """A real kill -9 in the middle of an answer, alone and in a batch."""
    flag = tmp_path / "died"
    there = ray_stage.ask_all(parties, mishap={"1": "die once"}, flag=str(flag))
    assert flag.exists()
    assert fakes.same(there, local_stage.ask_all(parties))


def test_a_worker_killed_from_outside(ray_stage, local_stage):
    """As the out-of-memory killer does it: at a moment nobody chose."""
    pids: set[int] = set()
    while len(pids) < 2:
        pids |= {f.result() for f in [ray_stage.engine.submit(_slow_pid) for _ in range(2)]}

    def kill() -> None:
        time.sleep(0.3)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    there = ray_stage.ask_all([0, 1, 2, 3], rounds=2, mishap={"1": "slow", "2": "slow"})
    killer.join()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert fakes.same(there, local_stage.ask_all([0, 1, 2, 3], rounds=2))


def _slow_pid() -> int:
    time.sleep(0.1)
    return os.getpid()


def test_a_request_that_kills_again_and_again_is_given_up(ray_stage):
    """The message names the one party that does it, not its neighbours in the batch."""
    with pytest.raises(PartyLost, match="worker of party 3 died 3 times"):
        ray_stage.ask_all([0, 1, 2, 3], mishap={"3": "die"})
    assert len(ray_stage.ask_all([0, 1, 2, 3], rounds=1)) == 4


def test_a_hung_party_is_named_and_its_worker_replaced(impatient):
    """Slow parties before it in the same batch do not hide it, nor are they blamed."""
    slow = {str(party): "slow" for party in range(4)}
    impatient.ask_all([0, 1], rounds=1)  # both workers are up
    begun = time.monotonic()
    with pytest.raises(PartyTimeout, match="party 5 did not answer within timeout=3 s"):
        impatient.play(
            lambda ask: ask([1, 3, 5], 0, Request()), parties=6, mishap={**slow, "5": "hang"}
        )
    assert 3 <= time.monotonic() - begun < 60
    assert len(impatient.ask_all([0, 1], rounds=1)) == 2


def test_many_slow_parties_are_not_hung(impatient):
    """The timeout is for one answer, not for a batch."""
    crowd = list(range(14))
    answers: list = []
    begun = time.monotonic()
    impatient.play(
        lambda ask: answers.extend(ask(crowd, 0, Request())),
        parties=14,
        mishap={str(party): "slow" for party in crowd},
    )
    assert [release.party for release in answers] == crowd
    assert time.monotonic() - begun > 3


def test_jobs_run_in_workers_and_bring_their_errors(ray_stage, tmp_path):
    """Results, exceptions as themselves, deaths survived, and a clear end after three."""
    engine = ray_stage.engine
    assert engine.submit(os.getpid).result() != os.getpid()
    assert engine.submit(pow, 2, 10).result() == 1024
    with pytest.raises(UserError, match="key=3"):
        engine.submit(raise_user_error).result()
    with pytest.raises(ZeroDivisionError):
        engine.submit(divmod, 1, 0).result()
    with pytest.raises(TypeError, match="generator"):
        engine.submit(_unpicklable).result()
    assert engine.submit(die_once, str(tmp_path / "flag")).result() == "alive"
    with pytest.raises(PartyLost, match="a function of the server died 3 times"):
        engine.submit(die).result()


def _unpicklable() -> object:
    return (i for i in range(3))


def test_jobs_leave_room_for_parties(ray_stage, tmp_path):
    """Two jobs for two workers that end only after the conversation: it goes on beside them."""
    flag = tmp_path / "flag"
    futures: list = []

    def part(ask) -> None:
        futures.extend(ray_stage.engine.submit(wait_for_file, str(flag)) for _ in range(2))
        for step in range(20):
            ask([0, 1, 2, 3], 0, Request(round=step))
        assert not any(future.done() for future in futures)
        flag.touch()

    ray_stage.play(part)
    assert all(future.result(timeout=60) for future in futures)


def wait_for_file(path: str) -> bool:
    return fakes.wait_for(lambda: os.path.exists(path), 60.0)


@pytest.mark.parametrize("sticky", [False, True])
def test_lone_messages_leave_a_busy_home_unless_told_to_stay(
    ray_stage, tmp_path, monkeypatch, sticky
):
    """Parties 0 and 2 live on the same worker; asked at once by two threads they can meet."""
    monkeypatch.setattr(ray_stage.engine, "_sticky", sticky)
    ray_stage.ask_all([0, 1], rounds=1)  # both workers are up
    met: dict[int, bool] = {}

    def part(ask) -> None:
        def ask_one(party: int) -> None:
            (release,) = ask([party], 0, Request(kind="meet"))
            met[party] = release.scalars["met"]

        threads = [threading.Thread(target=ask_one, args=(party,)) for party in (0, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    ray_stage.play(part, folder=str(tmp_path))
    assert sorted(met) == [0, 2]
    # The second of two sticky parties finds the sign of the first, parties waited in vain.
    assert sorted(met.values()) == [not sticky, True]


def test_batches_are_at_home_and_even(ray_stage):
    """Nobody idles while another has two messages more; sticky parties never move."""
    pool = ray_stage.engine._pool

    def homes(parties: list[int], sticky: bool) -> list[tuple[int, list[int]]]:
        from flwr.app import Message, RecordDict

        from fedsynth.engine.local_grid import node_of, party_at

        grid = RayGrid("{}", NodeSetup("{}", 100), pool, sticky)
        messages = [
            Message(RecordDict(), dst_node_id=node_of(p), message_type="query") for p in parties
        ]
        return [
            (batch.worker, [party_at(m.metadata.dst_node_id) for m in batch.messages])
            for batch in grid._batches(messages)
        ]

    assert homes([5], False) == [(1, [5])]
    assert homes([0, 2, 4, 6], True) == [(0, [0, 2, 4, 6])]
    assert homes([0, 1, 2, 3], False) == [(0, [0, 2]), (1, [1, 3])]
    ((_, first), (_, second)) = homes([0, 2, 4, 6, 8], False)
    assert sorted(first + second) == [0, 2, 4, 6, 8]
    assert abs(len(first) - len(second)) <= 1


def test_what_the_server_computes_in_a_job_runs_in_workers(ray_stage, local_stage):
    """All workers take part, and errors arrive as themselves; in one process it runs there."""
    found: list[set[int]] = []

    def part(ask) -> None:
        with ThreadPoolExecutor(4) as pool:
            while len(pids := set(pool.map(lambda _: ray_stage.compute(_slow_pid), range(4)))) < 2:
                pass
        found.append(pids)
        with pytest.raises(UserError, match="key=3"):
            ray_stage.compute(raise_user_error)

    ray_stage.play(part)
    assert os.getpid() not in found[0]
    local_stage.play(lambda _: found.append({local_stage.compute(os.getpid)}))
    assert found[1] == {os.getpid()}


def test_several_conversations_at_once(ray_stage, local_stage):
    """Threads that run jobs side by side get what they would get alone."""
    results: dict[int, list] = {}

    def run(seed: int) -> None:
        results[seed] = ray_stage.ask_all([0, 1, 2], rounds=5, seed=seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        assert fakes.same(results[seed], local_stage.ask_all([0, 1, 2], rounds=5, seed=seed))


def test_gpus_that_are_not_there_are_refused_at_once():
    """Ray would wait for them without end."""
    for name in ("ray", "inprocess", "flower"):
        begun = time.monotonic()
        with (
            pytest.raises(UserError, match=r"num_gpus: [12]00 GPUs are needed.* has \d"),
            open_job_engine(name, workers=2 if name != "inprocess" else None, num_gpus=100),
        ):
            pass
        assert time.monotonic() - begun < 5


def test_a_second_engine_that_would_wait_for_the_first_is_refused(ray_stage):
    """Its workers would queue for CPUs the first one keeps; one that asks for none may come."""
    ray_stage.ask_all([0], rounds=1)
    begun = time.monotonic()
    with (
        pytest.raises(UserError, match=r"other engines in this process hold 2 of the \d+ of this"),
        open_job_engine("ray", workers=2),
    ):
        pass
    assert time.monotonic() - begun < 20
    with open_job_engine("ray", workers=1, num_cpus=0) as engine:
        assert engine.submit(pow, 2, 10).result(timeout=120) == 1024
    assert len(ray_stage.ask_all([0, 1], rounds=1)) == 2


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"name": "rya"}, r"unknown engine 'rya'\. Did you mean 'ray'\?"),
        ({"workers": 0}, "workers=0"),
        ({"num_cpus": -1}, "num_cpus=-1"),
        ({"timeout": 0}, "timeout=0"),
        ({"name": "inprocess", "address": "auto"}, "address='auto'"),
    ],
)
def test_bad_settings_are_named(settings, match):
    """One message with the key and the value, before anything is started."""
    with pytest.raises(UserError, match=match), open_job_engine(**{"name": "ray", **settings}):
        pass
