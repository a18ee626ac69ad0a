"""The apps on a grid in this process: what leaves a party, and what the curator accepts."""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Callable, Sequence

import fakes
import pytest
import torch
from flwr.app import Context, Error, Message, RecordDict

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Release, Request
from fedsynth.engine.client_app import make_client_app
from fedsynth.engine.inprocess import InProcessGrid
from fedsynth.engine.local_grid import PartyHost
from fedsynth.engine.messages import (
    BadReply,
    PartyFailed,
    PartyRefused,
    PartyTimeout,
    read_job,
)
from fedsynth.engine.server_app import PartyConnections, make_server_app
from fedsynth.privacy.ledger import BudgetExceeded

SECRET = "patient 4711"


class MeddlingGrid(InProcessGrid):
    """A grid whose replies pass through `meddle` before the curator sees them."""

    def __init__(
        self, job: str, parties: int, meddle: Callable[[list[Message]], list[Message]]
    ) -> None:
        host = PartyHost(make_client_app(fakes.answer))
        super().__init__(job, parties, host, threading.RLock())
        self._meddle = meddle
        self.sent: list[Message] = []

    def deliver(self, messages: Sequence[Message], timeout: float | None) -> list[Message]:
        self.sent += messages
        return self._meddle(super().deliver(messages, timeout))


def curator(meddle: Callable[[list[Message]], list[Message]] = list, job: str = '{"seed": 1}'):
    """A curator of three parties."""
    return PartyConnections(MeddlingGrid(job, 3, meddle), 3, 1.0)


def test_answers_come_in_the_order_asked_whatever_order_replies_take():
    """Random order on the grid, the curator's order in the list."""

    def shuffle(replies: list[Message]) -> list[Message]:
        return random.Random(5).sample(replies, len(replies))

    for who in ([0, 1, 2], [2, 0, 1], [1]):
        got = curator(shuffle).ask(who, 0, Request())
        assert [release.party for release in got] == who
        assert fakes.same(got, [fakes.answer('{"seed": 1}', p, 0, Request()) for p in who])


def test_a_reply_to_an_earlier_question_is_refused():
    """Even where party, stage and round are right."""
    kept: list[Message] = []

    def replay(replies: list[Message]) -> list[Message]:
        if kept and kept[0].content.get("envelope") is not None:
            for reply, old in zip(replies, kept, strict=True):
                reply.content = old.content
        kept[:] = replies
        return replies

    asker = curator(replay)
    asker.ask([0, 1, 2], 0, Request())
    with pytest.raises(BadReply, match="party 0 was asked"):
        asker.ask([0, 1, 2], 0, Request())


def _swap_contents(replies: list[Message]) -> list[Message]:
    if len(replies) > 1 and "envelope" in replies[0].content:
        replies[0].content, replies[1].content = replies[1].content, replies[0].content
    return replies


def test_replies_of_other_parties_missing_and_doubled_ones_are_refused():
    """Who answers is checked against who was asked."""

    def lose_one(replies: list[Message]) -> list[Message]:
        return replies if "who" in replies[0].content else replies[:1] + replies[2:]

    def double(replies: list[Message]) -> list[Message]:
        return replies if "who" in replies[0].content else replies + replies[:1]

    with pytest.raises(BadReply, match="party 0 sent a release of party 1"):
        curator(_swap_contents).ask([0, 1], 0, Request())
    with pytest.raises(PartyTimeout, match="party 1 did not answer within timeout=1 s"):
        curator(lose_one).ask([0, 1, 2], 0, Request())
    with pytest.raises(BadReply, match="out of turn"):
        curator(double).ask([0, 1, 2], 0, Request())
    with pytest.raises(UserError, match=r"no party 3.*0\.\.2"):
        curator().ask([0, 3], 0, Request())
    with pytest.raises(ValueError, match="twice"):
        curator().ask([0, 0], 0, Request())


@pytest.mark.parametrize("mishap", ["no release", "of another", "secret"])
def test_only_a_release_of_this_party_leaves_and_no_text_of_unknown_errors(mishap, caplog):
    """Nothing of the exception travels but its type; the rest is in the party's log."""
    job = json.dumps({"seed": 1, "mishap": {"1": mishap}})
    seen: list[Message] = []

    def look(replies: list[Message]) -> list[Message]:
        seen.extend(replies)
        return replies

    with (
        caplog.at_level(logging.ERROR, "fedsynth.party"),
        pytest.raises(PartyFailed, match=r"party 1 failed: (TypeError|ValueError);") as caught,
    ):
        curator(look, job).ask([0, 1, 2], 0, Request())
    (reply,) = [reply for reply in seen if reply.has_error()]
    assert not reply.has_content()
    assert reply.error.reason in ("TypeError", "ValueError")
    assert SECRET not in str(caught.value) + repr(reply.__dict__)
    assert (SECRET in caplog.text) == (mishap == "secret")


def test_errors_meant_for_the_curator_keep_their_text():
    """A refusal says why; so does an exceeded budget."""
    job = '{"seed": 1, "mishap": {"2": "no"}}'
    with pytest.raises(PartyRefused, match="party 2 refused: the budget of this party is spent"):
        curator(job=job).ask([0, 1, 2], 0, Request())

    def spent(job: str, party: int, stage: int, request: Request) -> Release:
        raise BudgetExceeded("epsilon 1.2 of 1.0")

    grid = InProcessGrid("{}", 1, PartyHost(make_client_app(spent)), threading.RLock())
    with pytest.raises(PartyRefused, match=r"epsilon 1\.2 of 1\.0"):
        PartyConnections(grid, 1, 1.0).ask([0], 0, Request())


def test_the_host_keeps_texts_of_a_foreign_app_to_itself():
    """Also where an exception escapes from the app itself, as from an unknown message type."""
    grid = InProcessGrid("{}", 1, PartyHost(make_client_app(fakes.answer)), threading.RLock())
    message = Message(RecordDict(), dst_node_id=1000, message_type="train")
    (reply,) = grid.send_and_receive([message])
    assert reply.error.reason == "ValueError"


def test_the_grid_keeps_the_contract_of_flower():
    """Push and pull, ids, and replies that name their message."""
    grid = MeddlingGrid('{"seed": 1}', 2, list)
    messages = [
        grid.create_message(RecordDict(), "query.who", node, "g") for node in grid.get_node_ids()
    ]
    ids = list(grid.push_messages(messages))
    assert len(set(ids)) == 2
    replies = list(grid.pull_messages(ids[::-1]))
    assert [reply.metadata.reply_to_message_id for reply in replies] == ids[::-1]
    assert list(grid.pull_messages(ids)) == []
    grid.set_run(grid.run)
    with pytest.raises(ValueError, match="no node 7"):
        grid.send_and_receive([grid.create_message(RecordDict(), "query.who", 7, "g")])


def test_nodes_that_claim_the_same_party_are_refused():
    """Two SuperNodes started with the same partition id would answer for each other."""

    def claim(replies: list[Message]) -> list[Message]:
        replies[1].content = replies[0].content
        return replies

    with pytest.raises(UserError, match="two nodes state that they are party 0"):
        curator(claim).ask([0], 0, Request())


def test_a_node_that_fails_to_introduce_itself_is_an_error():
    """Flower's own error replies are understood too."""

    def fail(replies: list[Message]) -> list[Message]:
        broken = Message(Error(2, "no such app"), reply_to=grid_message(replies[0]))
        return [broken, *replies[1:]]

    with pytest.raises(PartyFailed, match="no such app"):
        curator(fail).ask([0], 0, Request())


def grid_message(reply: Message) -> Message:
    """A message that `reply` could be the reply to."""
    message = Message(RecordDict(), dst_node_id=reply.metadata.src_node_id, message_type="query")
    message.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return message


def test_jobs_are_read_from_text_or_file(tmp_path):
    """On real nodes a job is a file each of them has."""
    file = tmp_path / "job.json"
    file.write_text('{"a": 1}')
    assert read_job({"job": '{"b": 2}'}) == '{"b": 2}'
    assert read_job({"job": str(file)}) == '{"a": 1}'
    with pytest.raises(UserError, match="has no job"):
        read_job({})
    with pytest.raises(UserError, match="cannot be read"):
        read_job({"job": str(tmp_path / "missing")})


def test_the_server_app_runs_the_conversation():
    """The ServerApp hands job and `ask` over and waits for its end."""
    heard: list[object] = []
    app = make_server_app(lambda job, ask, _: heard.append((job, ask([1, 0], 3, Request()))))
    config = {"job": '{"seed": 1}', "parties": 3, "timeout": 1.0}
    app(MeddlingGrid('{"seed": 1}', 3, list), Context(1, 0, {}, RecordDict(), config))
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
            expected = fakes.answer('{"seed": 1}', release.party, stage, Request(round=i // 2))
            assert torch.equal(release.arrays["sum"], expected.arrays["sum"])
