"""The queue of calls chooses by fixed rules, hands out every call once, and starves nobody."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.engine.ray.call_queue import CallQueue
from fedsynth.engine.ray.calls import EXPECT_SECONDS, ActorHandle, PendingCall
from fedsynth.engine.ray.nodes import WorkerPlace


def workers(*disks: str) -> list[ActorHandle]:
    """Free workers on nodes with these disks."""
    return [
        ActorHandle(index, ready_at=1.0, place=WorkerPlace(f"node {index}", "", disk))
        for index, disk in enumerate(disks)
    ]


def answer(*parties: int, **named: Any) -> PendingCall:
    return PendingCall("answer", (), parties or (0,), **named)


def function(**named: Any) -> PendingCall:
    return PendingCall("run", (), **named)


def queue_of(team: list[ActorHandle], *calls: PendingCall) -> CallQueue:
    queue = CallQueue(team)
    for call in calls:
        queue.add(call)
    return queue


def order(queue: CallQueue, worker: ActorHandle, *, job_runs: bool = False) -> list[PendingCall]:
    """The calls that one worker runs, each at once."""
    taken = []
    while (call := queue.take_next(worker, job_runs=job_runs)) is not None:
        worker.ran_function = not call.is_answer
        taken.append(call)
    return taken


def test_answers_and_functions_take_turns_and_brief_functions_go_first() -> None:
    (worker,) = team = workers("")
    asked = [answer(n) for n in range(3)]
    run = [function() for _ in range(3)]
    brief = function(brief=True)
    found = order(queue_of(team, *asked, *run, brief), worker)
    assert found == [brief, asked[0], run[0], asked[1], run[1], asked[2], run[2]]


def test_the_heaviest_answer_of_the_first_job_goes_first() -> None:
    (worker,) = team = workers("")
    one = [answer(n, job="one", weight=w) for n, w in enumerate((1.0, 3.0, 2.0))]
    other = answer(9, job="other", weight=99.0)
    assert order(queue_of(team, one[0], other, *one[1:]), worker) == [one[1], one[2], one[0], other]


def test_a_repeated_call_goes_before_the_others_of_its_kind() -> None:
    (worker,) = team = workers("")
    calls = [function(), function(), function()]
    queue = queue_of(team, *calls[:2])
    queue.add_first(calls[2])
    assert order(queue, worker) == [calls[2], *calls[:2]]


@pytest.mark.parametrize(("job_runs", "limit"), [(False, 3), (True, 2)])
def test_functions_leave_a_ready_worker_to_the_parties_of_a_job(job_runs: bool, limit: int) -> None:
    team = workers("", "", "")
    queue = queue_of(team, *(function() for _ in range(5)))
    for worker in team:
        worker.call = queue.take_next(worker, job_runs=job_runs)
    assert sum(worker.call is not None for worker in team) == limit


def test_a_lone_worker_runs_functions_while_a_job_runs() -> None:
    team = workers("", "")
    team[1].ready_at = None  # dead, and starting again
    call = function()
    assert queue_of(team, call).take_next(team[0], job_runs=True) is call


def test_an_answer_goes_to_the_worker_that_has_its_data() -> None:
    team = workers("", "")
    calls = [answer(0, preferred=0), answer(1, preferred=1)]
    queue = queue_of(team, *calls)
    assert queue.take_next(team[1], job_runs=True) is calls[1]
    assert queue.take_next(team[1], job_runs=True) is None  # the other worker is free
    assert queue.take_next(team[0], job_runs=True) is calls[0]


RUNS = {"a function": function(), "an answer": answer(7), "nothing": None}


@pytest.mark.parametrize(
    ("call", "moves_from"),
    [
        (answer(0, preferred=0), {"a function", "an answer"}),
        (answer(0, 1, preferred=0), {"a function"}),
        (answer(0, preferred=0, sticky=True), set()),
        (answer(0), set(RUNS)),
    ],
    ids=["single", "batch", "sticky", "without data"],
)
def test_an_answer_leaves_a_busy_worker_by_its_kind(
    call: PendingCall, moves_from: set[str]
) -> None:
    for name, running in RUNS.items():
        team = workers("", "")
        team[0].call = running
        taken = queue_of(team, call).take_next(team[1], job_runs=True)
        assert (taken is call) == (name in moves_from), name


def test_a_worker_that_is_not_expected_back_keeps_no_answer() -> None:
    """Sticky ones go elsewhere too; while the worker may still start, they wait for it."""
    team = workers("", "")
    team[0].ready_at, team[0].spawned_at = None, time.monotonic()
    call = answer(0, preferred=0, sticky=True)
    queue = queue_of(team, call)
    assert queue.take_next(team[1], job_runs=True) is None
    team[0].spawned_at -= EXPECT_SECONDS
    assert queue.take_next(team[1], job_runs=True) is call


def test_calls_for_a_disk_run_there_or_are_lost() -> None:
    team = workers("a", "b")
    calls = [answer(0, disk="a"), answer(1, disk="gone"), function(disk="gone"), function()]
    queue = queue_of(team, *calls)
    assert queue.take_lost() == calls[1:3]
    assert queue.take_lost() == []
    assert order(queue, team[1]) == [calls[3]]
    assert order(queue, team[0]) == [calls[0]]


def test_abandoned_answers_leave_the_queue_and_functions_stay() -> None:
    (worker,) = team = workers("")
    calls = [answer(0), answer(1), function()]
    queue = queue_of(team, *calls)
    queue.drop_answers([calls[0], calls[2], answer(0)])
    assert len(queue) == 2
    assert order(queue, worker) == [calls[2], calls[1]]
    assert len(queue) == 0


CALLS = st.builds(
    PendingCall,
    st.just("work"),
    st.just(()),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    preferred=st.integers(-1, 2),
    sticky=st.booleans(),
    brief=st.booleans(),
    disk=st.sampled_from(["", "a", "b"]),
    job=st.sampled_from(["one", "two"]),
    weight=st.integers(0, 3).map(float),
)


@settings(max_examples=200, deadline=None)
@given(calls=st.lists(CALLS, max_size=25), job_runs=st.booleans(), data=st.data())
def test_every_call_is_run_once_by_a_worker_that_can(
    calls: list[PendingCall], job_runs: bool, data: st.DataObject
) -> None:
    """Whichever worker is free next: when all are, nothing is left in the queue."""
    team = workers("a", "b", "a")
    queue, done = queue_of(team, *calls), list[PendingCall]()
    while True:
        took = []
        for worker in data.draw(st.permutations(team)):
            worker.call = worker.call or queue.take_next(worker, job_runs=job_runs)
            if worker.call is not None and worker.call not in took:
                took.append(worker.call)
                assert worker.may_run(worker.call)
                worker.ran_function = not worker.call.is_answer
        if not took:
            break
        ended = data.draw(st.sampled_from([w for w in team if w.call is not None]))
        done.append(ended.call)
        ended.call = None
    assert len(queue) == 0
    assert len(done) == len(calls)
    assert {id(call) for call in done} == {id(call) for call in calls}
