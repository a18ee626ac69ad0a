"""The server app: the replies that the server accepts."""

from __future__ import annotations

import random
import threading

import fakes
import pytest
import torch
from altering_grid import AlteringGrid, connections
from flwr.app import Context, Error, Message, RecordDict

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Release, Request
from fedsynth.engine.client_app import Node
from fedsynth.engine.messages import (
    BadReply,
    PartyFailed,
    PartyLost,
    PartyTimeout,
)
from fedsynth.engine.server_app import (
    ANSWERED,
    GONE,
    JOINED,
    PartyConnections,
    make_server_app,
)


def test_answers_come_in_the_order_asked_whatever_order_replies_take():
    """Random order on the grid, the requested order in the list."""

    def shuffle(replies: list[Message]) -> list[Message]:
        return random.Random(5).sample(replies, len(replies))

    for who in ([0, 1, 2], [2, 0, 1], [1]):
        got = connections(shuffle).ask(who, 0, Request())
        assert [release.party for release in got] == who
        assert fakes.same(got, [fakes.answer('{"seed": 1}', Node(p), 0, Request()) for p in who])


def test_a_reply_to_an_earlier_question_is_refused():
    """Even where party, stage and round are right."""
    kept: list[Message] = []

    def replay(replies: list[Message]) -> list[Message]:
        if kept and kept[0].content.get("envelope") is not None:
            for reply, old in zip(replies, kept, strict=True):
                reply.content = old.content
        kept[:] = replies
        return replies

    asker = connections(replay)
    asker.ask([0, 1, 2], 0, Request())
    with pytest.raises(BadReply, match="party 0 was asked"):
        asker.ask([0, 1, 2], 0, Request())


def _swap_contents(replies: list[Message]) -> list[Message]:
    if len(replies) > 1 and "envelope" in replies[0].content:
        replies[0].content, replies[1].content = replies[1].content, replies[0].content
    return replies


def test_replies_of_other_parties_missing_and_doubled_ones_are_refused():
    """Replies are matched with the parties that were asked."""

    def lose_one(replies: list[Message]) -> list[Message]:
        return replies if "party" in replies[0].content else replies[:1] + replies[2:]

    def double(replies: list[Message]) -> list[Message]:
        return replies if "party" in replies[0].content else replies + replies[:1]

    with pytest.raises(BadReply, match="party 0 sent a release of party 1"):
        connections(_swap_contents).ask([0, 1], 0, Request())
    with pytest.raises(PartyTimeout, match="party 1 did not answer within timeout=1 s"):
        connections(lose_one).ask([0, 1, 2], 0, Request())
    with pytest.raises(BadReply, match="out of turn"):
        connections(double).ask([0, 1, 2], 0, Request())
    with pytest.raises(UserError, match=r"no party 3.*0\.\.2"):
        connections().ask([0, 3], 0, Request())
    with pytest.raises(ValueError, match="twice"):
        connections().ask([0, 0], 0, Request())


def test_nodes_that_claim_the_same_party_are_refused():
    """Two SuperNodes started with the same partition id would answer for each other."""

    def claim(replies: list[Message]) -> list[Message]:
        replies[1].content = replies[0].content
        return replies

    with pytest.raises(UserError, match="two nodes state that they are party 0"):
        connections(claim).ask([0], 0, Request())


def test_a_node_that_fails_to_introduce_itself_is_an_error():
    """Flower's own error replies are understood too."""

    def fail(replies: list[Message]) -> list[Message]:
        broken = Message(Error(2, "no such app"), reply_to=grid_message(replies[0]))
        return [broken, *replies[1:]]

    with pytest.raises(PartyFailed, match="no such app"):
        connections(fail).ask([0], 0, Request())


def test_a_node_that_is_gone_is_known_by_the_message_that_its_error_replies_to():
    """Of a node that was killed the SuperLink replies itself, with its own id as the source."""
    events: list[tuple[int, str]] = []

    def kill(replies: list[Message]) -> list[Message]:
        if "party" in replies[0].content:
            return replies
        gone = Message(Error(5, "no heartbeat"), reply_to=grid_message(replies[1]))
        gone.metadata.__dict__["_src_node_id"] = 1
        return [gone, replies[0], replies[2]]

    grid = AlteringGrid('{"seed": 1}', 3, kill)
    asker = PartyConnections(
        grid, 3, 1.0, observe=lambda party, event, _: events.append((party, event))
    )
    missing: dict[int, str] = {}
    answers = asker.ask([0, 1, 2], 0, Request(), missing)
    assert [release.party for release in answers] == [0, 2]
    assert missing == {1: "party 1 is gone: its node or its process died"}
    with pytest.raises(PartyLost, match="party 1 is gone"):
        asker.ask([0, 1, 2], 0, Request())
    joined = [(party, JOINED) for party in range(3)]
    assert events == [*joined, *[(0, ANSWERED), (1, GONE), (2, ANSWERED)] * 2]


def grid_message(reply: Message) -> Message:
    """A message that `reply` could be the reply to."""
    message = Message(RecordDict(), dst_node_id=reply.metadata.src_node_id, message_type="query")
    message.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return message


def test_the_server_app_runs_the_conversation():
    """The ServerApp hands job and `ask` over and waits for its end."""
    heard: list[object] = []
    app = make_server_app(lambda job, ask, *_: heard.append((job, ask([1, 0], 3, Request()))))
    config = {"job": '{"seed": 1}', "parties": 3, "timeout": 1.0}
    app(AlteringGrid('{"seed": 1}', 3, list), Context(1, 0, {}, RecordDict(), config))
    ((job, releases),) = heard
    assert job == '{"seed": 1}'
    assert [r.party for r in releases] == [1, 0]


def test_threads_may_ask_at_once(local_stage):
    """Stages that run concurrently get their own answers."""
    results: dict[int, list[Release]] = {}

    def part(ask) -> None:
        def one_stage(stage: int) -> None:
            results[stage] = [
                release
                for step in range(5)
                for release in ask([stage, 3 - stage], stage, Request(round=step))
            ]

        threads = [threading.Thread(target=one_stage, args=(s,)) for s in range(4) if s != 3 - s]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    local_stage.play(part, job=0)
    assert sorted(results) == [0, 1, 2, 3]
    for stage, releases in results.items():
        for i, release in enumerate(releases):
            expected = fakes.answer(
                '{"seed": 1}', Node(release.party), stage, Request(round=i // 2)
            )
            assert torch.equal(release.arrays["sum"], expected.arrays["sum"])
