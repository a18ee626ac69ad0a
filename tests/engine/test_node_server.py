"""The ServerApp of real nodes: prompt looks for replies, one thread, and an observer."""

from __future__ import annotations

import time

import pytest
import torch
from altering_grid import AlteringGrid
from flwr.app import Context, Message, RecordDict

from fedsynth.core.messages import Request
from fedsynth.engine import node_server
from fedsynth.engine.local_grid import node_of
from fedsynth.engine.messages import PARTY_OF_NODE
from fedsynth.engine.node_server import exchange_promptly, make_node_server_app
from fedsynth.engine.server_app import ANSWERED, JOINED


class SlowGrid(AlteringGrid):
    """A grid whose replies are there at the third look."""

    looks = 0

    def pull_messages(self, message_ids):
        self.looks += 1
        return super().pull_messages(message_ids) if self.looks > 2 else []


def questions() -> list[Message]:
    return [
        Message(RecordDict(), dst_node_id=node_of(party), message_type=PARTY_OF_NODE)
        for party in range(3)
    ]


def test_replies_are_fetched_as_soon_as_they_are_there():
    grid = SlowGrid('{"seed": 1}', 3, list)
    start = time.monotonic()
    replies = exchange_promptly(grid, questions(), timeout=30.0)
    assert time.monotonic() - start < 2.0
    assert sorted(r.metadata.src_node_id for r in replies) == [node_of(p) for p in range(3)]
    assert grid.looks == 3


def test_what_does_not_come_in_time_is_left_out(monkeypatch):
    monkeypatch.setattr(SlowGrid, "looks", -10_000)
    grid = SlowGrid('{"seed": 1}', 3, list)
    assert exchange_promptly(grid, questions(), timeout=0.2) == []


def test_the_server_computes_with_one_thread_and_notes_its_parties():
    """Thread counts change the bits of a release."""
    seen: list[object] = []

    def serve(job, ask, _on_stage, _compute):
        seen.append(torch.get_num_threads())
        seen.append([release.party for release in ask([2, 0], 0, Request())])

    app = make_node_server_app(serve, lambda job: lambda *event: seen.append((job, *event[:2])))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        config = {"job": '{"seed": 1}', "parties": 3, "timeout": 5.0}
        grid = AlteringGrid('{"seed": 1}', 3, list)
        app(grid, Context(1, 0, {}, RecordDict(), config))
    finally:
        torch.set_num_threads(before)
    job = '{"seed": 1}'
    joined = [(job, party, JOINED) for party in range(3)]
    assert seen == [1, *joined, (job, 2, ANSWERED), (job, 0, ANSWERED), [2, 0]]


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_nothing_is_waited_for_where_nothing_was_sent(timeout):
    assert exchange_promptly(AlteringGrid('{"seed": 1}', 3, list), [], timeout=timeout) == []
    assert node_server.FIRST_PAUSE < node_server.LONGEST_PAUSE
