"""The ServerApp and the ClientApp: plain Flower apps that know nothing of the engine.

They run unchanged on every grid of fedsynth, in Flower's simulation and on real nodes
(`experiment.flower_apps` has those that a FAB names). Parties are addressed by partition, never by
Flower's random node ids. A party sends a `Release` made for it, or an error without private text,
and nothing else.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Protocol

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from flwr.serverapp import Grid, ServerApp

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Release, Request
from fedsynth.engine.messages import (
    ANSWER,
    FAILED,
    LATE,
    LOST,
    REFUSED,
    WHO_ARE_YOU,
    BadReply,
    PartyFailed,
    PartyLost,
    PartyRefused,
    PartyTimeout,
    RequestId,
    decode_release,
    decode_request,
    encode_release,
    encode_request,
)
from fedsynth.engine.process_setup import prepare_worker

Answer = Callable[[str, int, int, Request], Release]


class Ask(Protocol):
    """`PartyConnections.ask`."""

    def __call__(
        self,
        who: Sequence[int],
        stage: int,
        request: Request | Mapping[int, Request],
        missing: MutableMapping[int, str] | None = None,
    ) -> list[Release]:
        """Ask these parties at once."""


Conversation = Callable[[str, Ask], None]

CONNECT_SECONDS = 120.0
_GONE_BY_FLOWER = (0, 3, 4, 5, 8)  # unknown (a dead actor), no message or reply, no node, crashed
_PARTY_KEYS = ("partition-id", "partition_id")
_log = logging.getLogger("fedsynth.party")


@functools.cache
def _prepare_process() -> None:
    prepare_worker()


def make_client_app(answer: Answer, mods: Sequence[Mod] = ()) -> ClientApp:
    """A ClientApp that answers requests with `answer(job, party, stage, request)`.

    Whatever goes wrong inside becomes an error reply: with its text if the error was written for
    the curator's eyes (`UserError`, `BudgetExceeded`), else with the exception's type alone. The
    text and the traceback of an unknown exception may hold private data; they stay in the party's
    log.
    """
    app = ClientApp(mods=list(mods))

    @app.query("who")
    def who(message: Message, context: Context) -> Message:
        """Tell which partition this node holds."""
        return _guarded(message, lambda: _introduce(context))

    @app.query("answer")
    def answer_request(message: Message, context: Context) -> Message:
        """Answer one request with a release."""
        _prepare_process()
        return _guarded(message, lambda: _release(answer, message, context))

    return app


def _introduce(context: Context) -> RecordDict:
    return RecordDict({"who": ConfigRecord({"party": party_of(context)})})


def _release(answer: Answer, message: Message, context: Context) -> RecordDict:
    party = party_of(context)
    question, request = decode_request(message.content)
    release = answer(read_job(context.run_config), party, question.stage, request)
    if type(release) is not Release:
        raise TypeError("a party may send a Release and nothing else")
    if release.party != party:
        raise ValueError("a party may send its own releases only")
    return encode_release(release, question)


def _guarded(message: Message, make: Callable[[], RecordDict]) -> Message:
    try:
        return Message(make(), reply_to=message)
    except Exception as error:
        return error_reply(message, error)


def error_reply(message: Message, error: Exception) -> Message:
    """The reply for an exception inside a party: its text only if it was meant for the curator."""
    from fedsynth.privacy.ledger import BudgetExceeded

    if isinstance(error, UserError | BudgetExceeded):
        return Message(Error(REFUSED, str(error)), reply_to=message)
    _log.error("a request failed inside the party", exc_info=error)
    return Message(Error(FAILED, type(error).__name__), reply_to=message)


def party_of(context: Context) -> int:
    """The party a node stands for: its partition id."""
    for key in _PARTY_KEYS:
        if key in context.node_config:
            return int(context.node_config[key])
    raise UserError("this node has no partition id; start it with --node-config 'partition-id=0'")


def read_job(run_config: Mapping[str, object]) -> str:
    """The job text from the run's configuration: JSON in `job`, or the path of a file with it."""
    job = str(run_config.get("job", "")).strip()
    if job.startswith("{"):
        return job
    if not job:
        raise UserError("the run has no job; give --run-config 'job=\"/path/of/job.json\"'")
    try:
        return Path(job).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"job={job!r} cannot be read: {error.strerror}") from None


class PartyConnections:
    """The curator's side of the wire: finds the parties, asks them and checks every reply."""

    def __init__(self, grid: Grid, parties: int, timeout: float) -> None:
        self._grid = grid
        self._parties = parties
        self._timeout = timeout
        self._serials = itertools.count()
        self._nodes: dict[int, int] = {}
        self._lock = threading.Lock()

    def ask(
        self,
        who: Sequence[int],
        stage: int,
        request: Request | Mapping[int, Request],
        missing: MutableMapping[int, str] | None = None,
    ) -> list[Release]:
        """Ask these parties at once; releases in the order of `who`. May be called by several
        threads. `request` is the same for all, or one of the same kind and round for each.

        Raises on the first party, in that order, that did not answer with a release. With
        `missing`, a party that is late or lost is left out and noted there, with the reason."""
        if len(set(who)) != len(who):
            raise ValueError(f"a party was asked twice in one question: {list(who)}")
        nodes = self._find_parties()
        if unknown := [party for party in who if party not in nodes]:
            raise UserError(f"no party {unknown[0]}; this run has parties 0..{self._parties - 1}")
        if not who:
            return []
        alike = request if isinstance(request, Request) else request[who[0]]
        question = RequestId(stage, alike.kind, alike.round, next(self._serials))
        if isinstance(request, Request):
            contents = dict.fromkeys((nodes[p] for p in who), encode_request(request, question))
        else:
            contents = {nodes[p]: encode_request(request[p], question) for p in who}
        # A party has `timeout` seconds for an answer; how many share a worker is not known here.
        patience = self._timeout * len(who) + 5.0
        replies = self._send(contents, ANSWER, patience, str(question.round))
        releases = []
        for party in who:
            try:
                content = _content(replies.get(nodes[party]), f"party {party}", self._timeout)
            except (PartyTimeout, PartyLost) as error:
                if missing is None:
                    raise
                missing[party] = str(error)
            else:
                releases.append(decode_release(content, party, question))
        return releases

    def _send(
        self,
        contents: Mapping[int, RecordDict],
        message_type: str,
        patience: float,
        group: str = "",
    ) -> dict[int, Message]:
        messages = [
            Message(content, dst_node_id=node, message_type=message_type, group_id=group)
            for node, content in contents.items()
        ]
        replies: dict[int, Message] = {}
        for reply in self._grid.send_and_receive(messages, timeout=patience):
            node = reply.metadata.src_node_id
            if node in replies or node not in contents:
                raise BadReply(f"node {node} replied out of turn")
            replies[node] = reply
        return replies

    def _find_parties(self) -> dict[int, int]:
        """Which node stands for which party; asked once, when all nodes are there."""
        with self._lock:
            if self._nodes:
                return self._nodes
            nodes = self._await_nodes()
            patience = max(self._timeout, CONNECT_SECONDS)
            replies = self._send(dict.fromkeys(nodes, RecordDict()), WHO_ARE_YOU, patience)
            found: dict[int, int] = {}
            for node in nodes:
                record = _content(replies.get(node), f"node {node}", patience).get("who")
                party = record.get("party") if isinstance(record, ConfigRecord) else None
                if not isinstance(party, int):
                    raise BadReply(f"node {node} did not say which party it is")
                if party in found:
                    raise UserError(f"two nodes say they are party {party}")
                found[party] = node
            self._nodes = found
            return found

    def _await_nodes(self) -> list[int]:
        deadline = time.monotonic() + CONNECT_SECONDS
        while len(nodes := list(self._grid.get_node_ids())) < self._parties:
            if time.monotonic() > deadline:
                raise UserError(
                    f"{len(nodes)} of {self._parties} parties connected within "
                    f"{CONNECT_SECONDS:.0f} s"
                )
            time.sleep(0.05)
        return nodes


def _content(reply: Message | None, who: str, timeout: float) -> RecordDict:
    if reply is None:
        raise PartyTimeout(f"{who} did not answer within timeout={timeout:g} s")
    if not reply.has_error():
        return reply.content
    if reply.error.code == REFUSED:
        raise PartyRefused(f"{who} refused: {reply.error.reason}")
    if reply.error.code == LATE:
        raise PartyTimeout(reply.error.reason or who)
    if reply.error.code == LOST:
        raise PartyLost(reply.error.reason or who)
    if reply.error.code in _GONE_BY_FLOWER:
        raise PartyLost(f"{who} is gone: its node or its process died")
    raise PartyFailed(f"{who} failed: {reply.error.reason}; its own log says more")


def make_server_app(conversation: Conversation) -> ServerApp:
    """A ServerApp that runs `conversation(job, ask)` to its end.

    The run's configuration holds `job`, `parties` (how many to wait for) and `timeout` (the seconds
    a party may take for one answer).
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        """Run the curator's side."""
        config = context.run_config
        curator = PartyConnections(grid, int(config["parties"]), float(config["timeout"]))
        conversation(read_job(config), curator.ask)

    return app
