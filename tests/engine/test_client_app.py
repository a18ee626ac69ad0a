"""The client app: a party sends releases of its own and no private text."""

from __future__ import annotations

import json
import logging
import threading

import fakes
import pytest
from altering_grid import connections
from flwr.app import Message, RecordDict

from fedsynth.core.messages import Release, Request
from fedsynth.engine.base import NodeSetup
from fedsynth.engine.client_app import Node, make_client_app
from fedsynth.engine.inprocess import InProcessGrid
from fedsynth.engine.local_grid import PartyHost
from fedsynth.engine.messages import (
    PartyFailed,
    PartyRefused,
)
from fedsynth.engine.server_app import PartyConnections
from fedsynth.privacy.ledger import BudgetExceeded

SECRET = "patient 4711"


@pytest.mark.parametrize("mishap", ["no release", "of another", "secret"])
def test_only_a_release_of_this_party_leaves_and_no_text_of_unknown_errors(mishap, caplog):
    """Nothing of the exception travels, not even its type; all of it is in the party's log."""
    job = json.dumps({"seed": 1, "mishap": {"1": mishap}})
    seen: list[Message] = []

    def look(replies: list[Message]) -> list[Message]:
        seen.extend(replies)
        return replies

    with (
        caplog.at_level(logging.ERROR, "fedsynth.party"),
        pytest.raises(PartyFailed, match="party 1 failed: internal;") as caught,
    ):
        connections(look, job).ask([0, 1, 2], 0, Request())
    (reply,) = [reply for reply in seen if reply.has_error()]
    assert not reply.has_content()
    assert reply.error.reason == "internal"
    assert SECRET not in str(caught.value) + repr(reply.__dict__)
    assert (SECRET in caplog.text) == (mishap == "secret")


def test_errors_written_for_the_server_keep_their_text():
    """A refusal says why; so does an exceeded budget."""
    job = '{"seed": 1, "mishap": {"2": "no"}}'
    with pytest.raises(
        PartyRefused, match=r"party 2 refused \(budget\): the budget of this party is spent"
    ):
        connections(job=job).ask([0, 1, 2], 0, Request())

    def spent(proposal: str, node: Node, stage: int, request: Request) -> Release:
        raise BudgetExceeded("epsilon 1.2 of 1.0")

    grid = InProcessGrid(
        "{}", NodeSetup("{}", 1), PartyHost(make_client_app(spent)), threading.RLock()
    )
    with pytest.raises(PartyRefused, match=r"epsilon 1\.2 of 1\.0"):
        PartyConnections(grid, 1, 1.0).ask([0], 0, Request())


def test_the_host_keeps_texts_of_a_foreign_app_to_itself():
    """Also where an exception escapes from the app itself, as from an unknown message type."""
    grid = InProcessGrid(
        "{}", NodeSetup("{}", 1), PartyHost(make_client_app(fakes.answer)), threading.RLock()
    )
    message = Message(RecordDict(), dst_node_id=1000, message_type="train")
    (reply,) = grid.send_and_receive([message])
    assert reply.error.reason == "internal"
