"""How the Ray grid divides parties, and bounds what a worker holds; without a cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import fakes
import numpy as np
import pytest
import ray
from flwr.app import Message, RecordDict

from fedsynth.core.messages import Request
from fedsynth.engine.base import Handlers, NodeSetup
from fedsynth.engine.local_grid import node_of, party_at, serve_on_grid
from fedsynth.engine.ray import grid as module
from fedsynth.engine.ray.calls import PendingCall
from fedsynth.engine.ray.grid import RayGrid, RayWorker
from fedsynth.engine.server_app import Ask


class PoolHere:
    """Answers every call at once, with one worker in this process."""

    def __init__(self, size: int = 1) -> None:
        self.size, self.calls = size, 0
        self._worker = RayWorker(ray.cloudpickle.dumps(fakes.answer))

    def expected(self) -> tuple[int, ...]:
        return tuple(range(self.size))

    def enqueue(self, calls: Iterable[PendingCall]) -> None:
        for call in calls:
            self.calls += 1
            call.result.set_result(self._worker.answer(*call.arguments))

    def check_deadline(self, call: PendingCall) -> float:
        return 0.0

    def cancel(self, calls: Iterable[PendingCall]) -> None:
        assert not list(calls)


def loads(weights: Iterable[float], workers: int, asked: Iterable[int] = ()) -> list[float]:
    """The records that each worker gets when these parties are asked at once."""
    records = tuple(int(weight) for weight in weights)
    nodes = NodeSetup("{}", len(records), records=records)
    pool: Any = PoolHere(workers)
    grid = RayGrid("{}", nodes, pool)
    messages = [
        Message(RecordDict(), dst_node_id=node_of(party), message_type="query")
        for party in asked or range(len(records))
    ]
    return [
        float(sum(records[party_at(m.metadata.dst_node_id)] for m in batch.messages))
        for batch in grid._batches(messages)
    ]


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_heavy_parties_first_is_near_the_best_division(workers: int) -> None:
    """Twenty log-normal parties: within 5% of what no division can undercut."""
    for seed in range(20):
        weights = np.random.default_rng(seed).lognormal(7, 1, 20).astype(int)
        least = max(weights.max(), weights.sum() / workers)
        assert max(loads(weights, workers)) <= 1.05 * least, seed


def test_some_of_the_parties_are_divided_as_well_as_all() -> None:
    """Parties that prefer the same worker leave it when they are asked together."""
    weights = np.random.default_rng(5).lognormal(7, 1, 40).astype(int)
    rng = np.random.default_rng(6)
    for _ in range(20):
        asked = rng.choice(40, 12, replace=False).tolist()
        found = loads(weights, 2, asked)
        best = min(
            max(
                sum(weights[p] for p in half),
                sum(weights[p] for p in asked) - sum(weights[p] for p in half),
            )
            for half in itertools.combinations(asked, 6)
        )
        assert max(found) <= 1.25 * best


def test_parties_of_unknown_size_are_divided_evenly() -> None:
    pool: Any = PoolHere(3)
    grid = RayGrid("{}", NodeSetup("{}", 10), pool)
    assert grid._divide((0, 1, 2)) == [party % 3 for party in range(10)]


@pytest.mark.parametrize("most", [1, 1000, 2**25])
def test_a_worker_never_holds_all_large_replies(monkeypatch, local_stage, most: int) -> None:
    """The rest of a batch is another call; the answers are the same, each party answers once."""
    monkeypatch.setattr(module, "MOST_REPLY_BYTES", most)
    pool: Any = PoolHere()
    answers: list[Any] = []

    def serve(job: str, ask: Ask, *_: object) -> None:
        answers.extend(ask(range(6), 2, Request(round=1)))

    text = '{"seed": 1}'
    grid = RayGrid(text, NodeSetup(text, 6), pool)
    serve_on_grid(Handlers(fakes.answer, serve, 60.0), grid, lambda *_: None)
    local_stage.play(lambda ask: answers.extend(ask(range(6), 2, Request(round=1))), parties=6)
    assert fakes.same(answers[:6], answers[6:])
    identities = 1
    assert pool.calls - identities == {1: 6, 1000: 1, 2**25: 1}[most]
