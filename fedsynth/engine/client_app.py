"""The ClientApp: answers requests inside a party, and lets nothing but a `Release` out.

It runs unchanged on every grid of fedsynth, in Flower's simulation and on real nodes
(`experiment.flower_apps` has the app that a FAB names). A party sends a `Release` made for it, or
an error reply: a code (`core.errors.Refusal`) and, where one was written for the server, a text.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from fedsynth.core.errors import Refusal, Refused, UserError
from fedsynth.core.messages import Release, Request
from fedsynth.engine.messages import (
    FAILED,
    REFUSED,
    decode_request,
    encode_release,
    read_proposal,
)
from fedsynth.engine.process_setup import prepare_worker


@dataclass(frozen=True)
class Node:
    """One party, by the configuration of its own node: nothing in it comes from a message."""

    party: int
    party_config: str = ""  # the path of its `party.yaml`


Answer = Callable[[str, Node, int, Request], Release]
"""Answers a request: the text of the server's proposal, node, stage, request."""

PARTY_CONFIG = "party-config"
_PARTY_KEYS = ("partition-id", "partition_id")
_log = logging.getLogger("fedsynth.party")


@functools.cache
def _prepare_process() -> None:
    prepare_worker()


def make_client_app(answer: Answer, mods: Sequence[Mod] = ()) -> ClientApp:
    """Return a ClientApp that answers requests with `answer(proposal, node, stage, request)`.

    An exception becomes an error reply; see `error_reply`.
    """
    app = ClientApp(mods=list(mods))

    @app.query("party")
    def identify(message: Message, context: Context) -> Message:
        """Reply with the partition of this node."""
        return _reply(message, lambda: _identity(context))

    @app.query("answer")
    def answer_request(message: Message, context: Context) -> Message:
        """Reply to one request with a release."""
        _prepare_process()
        return _reply(message, lambda: _release(answer, message, context))

    return app


def _identity(context: Context) -> RecordDict:
    return RecordDict({"party": ConfigRecord({"party": node_of(context).party})})


def _release(answer: Answer, message: Message, context: Context) -> RecordDict:
    node = node_of(context)
    request_id, request = decode_request(message.content)
    release = answer(read_proposal(context.run_config), node, request_id.stage, request)
    if type(release) is not Release:
        raise TypeError("a party may send a Release and nothing else")
    if release.party != node.party:
        raise ValueError("a party may send its own releases only")
    return encode_release(release, request_id)


def _reply(message: Message, make: Callable[[], RecordDict]) -> Message:
    try:
        return Message(make(), reply_to=message)
    except Exception as error:
        return error_reply(message, error)


def error_reply(message: Message, error: Exception) -> Message:
    """Return the reply for an exception inside a party: a code, and a text only if it was written
    for the server.

    Type, text and traceback of any other exception may depend on records, and an error about a file
    tells whether it exists. They stay in the party's log.
    """
    refused = refusal_of(error)
    if refused is not None:
        cause = refused.__cause__
        if isinstance(cause, UserError):  # for the party's operator; its text says it all
            _log.warning("refused (%s): %s", refused.code, cause)
        else:
            _log.warning("refused (%s): %s", refused.code, refused, exc_info=cause)
        return Message(Error(REFUSED, f"{refused.code}: {refused}"), reply_to=message)
    _log.error("a request failed inside the party", exc_info=error)
    return Message(Error(FAILED, Refusal.INTERNAL.value), reply_to=message)


def refusal_of(error: Exception) -> Refused | None:
    """The refusal that an exception stands for; None for an error that no refusal foresees."""
    from fedsynth.privacy.ledger import BudgetExceeded, LedgerError
    from fedsynth.privacy.secagg.client import OutOfTurn

    if isinstance(error, Refused):
        return error
    if isinstance(error, BudgetExceeded):
        return Refused(Refusal.BUDGET, str(error))
    if isinstance(error, LedgerError):
        text = "this party's ledger is damaged or does not fit the request; its log has the reason."
        refused = Refused(Refusal.LEDGER, text)
        refused.__cause__ = error
        return refused
    if isinstance(error, OutOfTurn):
        return Refused(Refusal.REQUEST, str(error))
    if isinstance(error, UserError):  # that the party's operator can correct: no space, no file
        refused = Refused(Refusal.INTERNAL, "this party cannot answer now; its log has the reason.")
        refused.__cause__ = error
        return refused
    return None


def node_of(context: Context) -> Node:
    """The node's own configuration: the party is its partition id.

    Raises:
        Refused: The node was started without a partition id.
    """
    for key in _PARTY_KEYS:
        if key in context.node_config:
            path = str(context.node_config.get(PARTY_CONFIG, ""))
            return Node(int(context.node_config[key]), path)
    text = "this node has no partition id; start it with --node-config 'partition-id=0'"
    raise Refused(Refusal.POLICY, text)
