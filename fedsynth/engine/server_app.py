"""The ServerApp, and the server's connections to the parties.

It runs unchanged on every grid of fedsynth, in Flower's simulation and on real nodes. Parties are
addressed by partition, never by Flower's node ids, which are random.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedsynth.core.errors import Refusal, UserError
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.engine.messages import (
    ANSWER,
    LATE,
    LOST,
    PARTY_OF_NODE,
    REFUSED,
    BadReply,
    PartyFailed,
    PartyLost,
    PartyRefused,
    PartyTimeout,
    RequestId,
    decode_release,
    encode_request,
    read_job,
)

CONNECT_SECONDS = 120.0
_GONE_BY_FLOWER = (0, 3, 4, 5, 8)  # unknown (a dead actor), no message or reply, no node, crashed


class Ask(Protocol):
    """The signature of `PartyConnections.ask`."""

    def __call__(
        self,
        parties: Sequence[int],
        stage: int,
        request: Request | Mapping[int, Request],
        missing: MutableMapping[int, str] | None = None,
    ) -> list[Release]:
        """Ask these parties at once."""


StageCallback = Callable[[int, Outcome], None]
"""Takes the index and the outcome of a stage that is complete."""


class Compute(Protocol):
    """Calls a picklable function for the server, in a worker where there are some, and returns its
    result."""

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call `function(*arguments)`."""


def compute_here(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in this process."""
    return function(*arguments)


ServeJob = Callable[[str, Ask, StageCallback, Compute], None]
"""Runs a job at the server: job text, the function that asks parties, the callback that is called
once per complete stage, and the function that computes in workers."""


def ignore_stage(_stage: int, _outcome: Outcome) -> None:
    """A stage callback that does nothing."""


JOINED, ANSWERED = "joined", "answered"
REFUSING, GONE, FAILING = "refused", "gone", "failed"

Observe = Callable[[int, str, str], None]
"""Takes a party, what happened to it (JOINED, ANSWERED, REFUSING, GONE or FAILING), and details."""


class Exchange(Protocol):
    """The signature of `Grid.send_and_receive`."""

    def __call__(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for the replies, for at most `timeout` seconds in all."""


def ignore_party(_party: int, _event: str, _details: str) -> None:
    """An observer that does nothing."""


class PartyConnections:
    """The server's connections: finds the parties, asks them and checks every reply."""

    def __init__(
        self,
        grid: Grid,
        parties: int,
        timeout: float,
        *,
        observe: Observe = ignore_party,
        exchange: Exchange | None = None,
    ) -> None:
        """Connect to the parties of a run; none is asked yet.

        Args:
            grid: The grid that reaches them.
            parties: The number of parties to wait for.
            timeout: The seconds that a party may take per answer.
            observe: Told what happens to each party.
            exchange: Sends messages and returns the replies; default: the grid's own way.
        """
        self._grid = grid
        self._observe = observe
        self._exchange = exchange or grid.send_and_receive
        self._parties = parties
        self._timeout = timeout
        self._serials = itertools.count()
        self._nodes: dict[int, int] = {}
        self._lock = threading.Lock()

    def ask(
        self,
        parties: Sequence[int],
        stage: int,
        request: Request | Mapping[int, Request],
        missing: MutableMapping[int, str] | None = None,
    ) -> list[Release]:
        """Ask these parties at once. Several threads may ask at the same time.

        Args:
            parties: The parties to ask, each once.
            stage: The index of the stage.
            request: The same request for all, or one of the same kind and round per party.
            missing: If given, a party that is late or lost is left out and its reason stored here.

        Returns:
            The releases in the order of `parties`.

        Raises:
            PartyGone, PartyRefused, PartyFailed, BadReply: The first party, in that order, that did
                not answer with a release.
        """
        if len(set(parties)) != len(parties):
            raise ValueError(f"a party was asked twice by one request: {list(parties)}")
        nodes = self._find_parties()
        if unknown := [party for party in parties if party not in nodes]:
            raise UserError(f"no party {unknown[0]}; this run has parties 0..{self._parties - 1}")
        if not parties:
            return []
        example = request if isinstance(request, Request) else request[parties[0]]
        request_id = RequestId(stage, example.kind, example.round, next(self._serials))
        if isinstance(request, Request):
            content = encode_request(request, request_id)
            contents = dict.fromkeys((nodes[party] for party in parties), content)
        else:
            contents = {nodes[p]: encode_request(request[p], request_id) for p in parties}
        # A party has `timeout` seconds per answer; how many share a worker is not known here.
        patience = self._timeout * len(parties) + 5.0
        replies = self._send(contents, ANSWER, patience, str(request_id.round))
        releases = []
        failures: list[Exception] = []
        for party in parties:
            # A reply is dropped once it is read: all of them together may be large.
            reply = replies.pop(nodes[party], None)
            try:
                releases.append(self._read(reply, party, request_id))
            except (PartyTimeout, PartyLost) as error:
                if missing is None:
                    failures.append(error)
                else:
                    missing[party] = str(error)
            except (PartyRefused, PartyFailed, BadReply) as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return releases

    def _read(self, reply: Message | None, party: int, request_id: RequestId) -> Release:
        """The release in a reply; the observer is told what it is."""
        try:
            content = _content(reply, f"party {party}", self._timeout)
            release = decode_release(content, party, request_id)
        except (PartyTimeout, PartyLost) as error:
            self._observe(party, GONE, str(error))
            raise
        except (PartyRefused, PartyFailed, BadReply) as error:
            refuses = isinstance(error, PartyRefused)
            self._observe(party, REFUSING if refuses else FAILING, str(error))
            raise
        self._observe(party, ANSWERED, str(request_id))
        return release

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
        received = list(self._exchange(messages, timeout=patience))
        # Of a node that is gone the SuperLink replies itself, with its own id as the source.
        asked = {m.metadata.message_id: m.metadata.dst_node_id for m in messages}
        for reply in received:
            node = asked.get(reply.metadata.reply_to_message_id)
            if node is None or node in replies:
                raise BadReply(f"node {reply.metadata.src_node_id} replied out of turn")
            replies[node] = reply
        return replies

    def _find_parties(self) -> dict[int, int]:
        """The node of each party; asked once, when all nodes are connected."""
        with self._lock:
            if self._nodes:
                return self._nodes
            nodes = self._await_nodes()
            patience = max(self._timeout, CONNECT_SECONDS)
            replies = self._send(dict.fromkeys(nodes, RecordDict()), PARTY_OF_NODE, patience)
            found_nodes: dict[int, int] = {}
            for node in nodes:
                record = _content(replies.get(node), f"node {node}", patience).get("party")
                party = record.get("party") if isinstance(record, ConfigRecord) else None
                if not isinstance(party, int):
                    raise BadReply(f"node {node} did not state which party it is")
                if party in found_nodes:
                    raise UserError(f"two nodes state that they are party {party}")
                found_nodes[party] = node
                self._observe(party, JOINED, f"node {node}")
            self._nodes = found_nodes
            return found_nodes

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


def _content(reply: Message | None, sender: str, timeout: float) -> RecordDict:
    if reply is None:
        raise PartyTimeout(f"{sender} did not answer within timeout={timeout:g} s")
    if not reply.has_error():
        return reply.content
    if reply.error.code == REFUSED:
        code, _, text = (reply.error.reason or "").partition(": ")
        known = Refusal(code) if code in tuple(Refusal) else Refusal.INTERNAL
        raise PartyRefused(f"{sender} refused ({known}): {text}", known)
    if reply.error.code == LATE:
        raise PartyTimeout(reply.error.reason or sender)
    if reply.error.code == LOST:
        raise PartyLost(reply.error.reason or sender)
    if reply.error.code in _GONE_BY_FLOWER:
        raise PartyLost(f"{sender} is gone: its node or its process died")
    raise PartyFailed(f"{sender} failed: {reply.error.reason}; see its log")


def make_server_app(
    serve: ServeJob, on_stage: StageCallback = ignore_stage, compute: Compute = compute_here
) -> ServerApp:
    """Return a ServerApp that runs `serve(job, ask, on_stage, compute)` to its end.

    The run's configuration holds `job`, `parties` (the number to wait for) and `timeout` (the
    seconds that a party may take per answer).
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        """Run the server's side."""
        config = context.run_config
        connections = PartyConnections(grid, int(config["parties"]), float(config["timeout"]))
        serve(read_job(config), connections.ask, on_stage, compute)

    return app
