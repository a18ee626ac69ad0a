"""The ClientApp: answers requests inside a party, and lets nothing but a `Release` out.

It runs unchanged on every grid of fedsynth, in Flower's simulation and on real nodes
(`experiment.flower_apps` has the app that a FAB names). A party sends a `Release` made for it, or
an error without private text.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Release, Request
from fedsynth.engine.messages import (
    FAILED,
    REFUSED,
    decode_request,
    encode_release,
    read_job,
)
from fedsynth.engine.process_setup import prepare_worker

Answer = Callable[[str, int, int, Request], Release]
"""Answers a request: job text, party, stage, request."""

_PARTY_KEYS = ("partition-id", "partition_id")
_log = logging.getLogger("fedsynth.party")


@functools.cache
def _prepare_process() -> None:
    prepare_worker()


def make_client_app(answer: Answer, mods: Sequence[Mod] = ()) -> ClientApp:
    """Return a ClientApp that answers requests with `answer(job, party, stage, request)`.

    An exception becomes an error reply. Its text is sent only if it was written for the server
    (`UserError`, `BudgetExceeded`); otherwise the reply holds the exception's type alone, because
    the text and the traceback of an unknown exception may hold private data. Those stay in the
    party's log.
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
    return RecordDict({"party": ConfigRecord({"party": party_of(context)})})


def _release(answer: Answer, message: Message, context: Context) -> RecordDict:
    party = party_of(context)
    request_id, request = decode_request(message.content)
    release = answer(read_job(context.run_config), party, request_id.stage, request)
    if type(release) is not Release:
        raise TypeError("a party may send a Release and nothing else")
    if release.party != party:
        raise ValueError("a party may send its own releases only")
    return encode_release(release, request_id)


def _reply(message: Message, make: Callable[[], RecordDict]) -> Message:
    try:
        return Message(make(), reply_to=message)
    except Exception as error:
        return error_reply(message, error)


def error_reply(message: Message, error: Exception) -> Message:
    """Return the reply for an exception inside a party, without private text."""
    from fedsynth.privacy.ledger import BudgetExceeded

    if isinstance(error, UserError | BudgetExceeded):
        return Message(Error(REFUSED, str(error)), reply_to=message)
    _log.error("a request failed inside the party", exc_info=error)
    return Message(Error(FAILED, type(error).__name__), reply_to=message)


def party_of(context: Context) -> int:
    """The party of a node: its partition id."""
    for key in _PARTY_KEYS:
        if key in context.node_config:
            return int(context.node_config[key])
    raise UserError("this node has no partition id; start it with --node-config 'partition-id=0'")
