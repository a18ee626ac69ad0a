"""The pool on a cluster that others use, whose nodes leave and come back. No Ray is started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakes
import pytest
from actors import Cluster, cluster  # noqa: F401  a fixture

from fedsynth.engine.ray.calls import DiskLost, PendingCall
from fedsynth.engine.ray.pool import RayPool


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def pool(cluster: Cluster, notes: list[str]) -> Any:  # noqa: F811
    found = RayPool(2, cluster.spawn, 60.0, notes.append, joined=True)
    yield found
    found.close()


def ask(pool: RayPool, *arguments: str, **named: Any) -> PendingCall:
    call = PendingCall("work", arguments, parties=(0,), preferred=0, **named)
    pool.enqueue([call])
    return call


def soon(condition: Callable[[], bool]) -> bool:
    return fakes.wait_for(condition, 20.0)


def test_work_behind_other_users_waits_and_says_so(cluster, pool, notes):  # noqa: F811
    call = ask(pool)
    assert soon(lambda: any("0 of 2 workers have started" in note for note in notes))
    assert "the run waits for room" in notes[0]
    assert not call.result.done()
    cluster.add("a")
    assert call.result.result(timeout=20) == "a"
    assert soon(lambda: "1 of 2 workers" in notes[-1])
    assert "goes on with these" in notes[-1]


def test_the_pool_shrinks_to_the_workers_it_has_and_grows_back(cluster, pool, notes):  # noqa: F811
    for node in "ab":
        cluster.add(node)
    assert soon(lambda: len(pool.await_places()) == 2)
    cut = ask(pool, "long")
    assert soon(lambda: any(actor.running for actor in cluster.actors))
    (busy,) = (actor.node for actor in cluster.actors if actor.running)
    cluster.kill(busy)
    assert soon(lambda: any(actor.running for actor in cluster.actors))  # asked again elsewhere
    assert soon(lambda: f"node {busy} left the cluster" in notes)
    assert soon(lambda: len(pool.expected()) == 1)
    assert soon(lambda: "1 of 2 workers have started" in notes[-1])
    cluster.add("c")
    assert soon(lambda: len(pool.expected()) == 2)
    assert soon(lambda: notes[-1] == "all 2 workers have started again")
    assert ask(pool).result.result(timeout=20) == "c"
    assert not cut.result.done()


def test_a_call_that_needs_a_lost_disk_ends_and_others_go_on(cluster, pool):  # noqa: F811
    for node in "ab":
        cluster.add(node, f"disk of {node}")
    assert soon(lambda: len(pool.await_places()) == 2)
    assert ask(pool, disk="disk of b").result.result(timeout=20) == "b"
    running = ask(pool, "long", disk="disk of b")
    waiting = ask(pool, disk="disk of b")
    cluster.kill("b")
    for call in (running, waiting):
        with pytest.raises(DiskLost):
            call.result.result(timeout=20)
    assert ask(pool, disk="disk of a").result.result(timeout=20) == "a"
    cluster.add("b again", "disk of b")  # it came back with its disk
    assert soon(lambda: bool(pool.on_disk("disk of b")))
    assert ask(pool, disk="disk of b").result.result(timeout=20) == "b again"


def test_the_heaviest_waiting_party_is_asked_first(cluster, pool):  # noqa: F811
    calls = [PendingCall("work", (), (n,), 0, job="j", weight=n % 3) for n in range(6)]
    order: list[int] = []
    for call in calls:
        call.result.add_done_callback(lambda _, call=call: order.append(call.parties[0]))
    pool.enqueue(calls)
    cluster.add("a")
    assert soon(lambda: len(order) == 6)
    assert order == [2, 5, 1, 4, 0, 3]
