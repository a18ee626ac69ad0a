"""Flower grids without a SuperLink: the part that the in-process and the Ray grid share.

A grid carries the messages of one run of one job. A node of these grids is a party: its id is the
partition plus a constant. The ServerApp does not rely on that; it asks, as on real nodes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from flwr.app import Context, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedsynth.engine.base import Handlers, NodeSetup
from fedsynth.engine.client_app import PARTY_CONFIG, error_reply
from fedsynth.engine.flower_compat import LOCAL_RUN, Run, identify_process, local_run, stamp
from fedsynth.engine.server_app import Compute, StageCallback, compute_here, make_server_app

_FIRST_NODE = 1000


def node_of(party: int) -> int:
    """The node id of a party on the grids of this package."""
    return _FIRST_NODE + party


def party_at(node: int) -> int:
    """The party behind a node id of the grids of this package."""
    return node - _FIRST_NODE


class PartyHost:
    """Hosts any number of parties in one process: one ClientApp, a context per job and party."""

    def __init__(self, app: ClientApp) -> None:
        self._app = app
        self._contexts: dict[tuple[NodeSetup, int], Context] = {}

    def handle(self, nodes: NodeSetup, message: Message) -> Message:
        """Return the reply of the party to which this message is addressed.

        An exception becomes an error reply without private text (`error_reply`)."""
        try:
            context = self._context(nodes, message.metadata.dst_node_id)
            return self._app(message, context)
        except Exception as error:
            return error_reply(message, error)

    def _context(self, nodes: NodeSetup, node: int) -> Context:
        context = self._contexts.get((nodes, node))
        if context is None:
            party = party_at(node)
            if nodes.policy:
                nodes.write_policy(party)
            node_config: UserConfig = {"partition-id": party, "num-partitions": nodes.parties}
            node_config[PARTY_CONFIG] = nodes.party_config(party)
            run_config: UserConfig = {"proposal": nodes.proposal}
            context = Context(LOCAL_RUN, node, node_config, RecordDict(), run_config)
            self._contexts[nodes, node] = context
        return context


class LocalGrid(Grid):
    """Nodes, ids and the two-step push and pull of a grid without a SuperLink."""

    def __init__(self, job: str, nodes: NodeSetup) -> None:
        identify_process()
        self.job = job
        self.nodes = nodes
        self.parties = nodes.parties
        self._run = local_run()
        self._waiting: dict[str, Message] = {}

    @abstractmethod
    def deliver(self, messages: Sequence[Message], timeout: float | None) -> list[Message]:
        """Hand every message to its party and return the replies, in any order."""

    def set_run(self, run: Run) -> None:
        """Set the description of the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The description of the run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A new message; the constructor of `Message` does the same."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """The ids of all parties' nodes."""
        return [node_of(party) for party in range(self.parties)]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver messages and keep the replies until they are pulled."""
        messages = list(messages)
        for reply in self.send_and_receive(messages):
            self._waiting[reply.metadata.reply_to_message_id] = reply
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these messages, each once."""
        return [self._waiting.pop(id_) for id_ in message_ids if id_ in self._waiting]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Deliver messages and wait for the replies, for at most `timeout` seconds in all."""
        messages = list(messages)
        for message in messages:
            if not 0 <= party_at(message.metadata.dst_node_id) < self.parties:
                raise ValueError(f"there is no node {message.metadata.dst_node_id}")
            stamp(message)
        return self.deliver(messages, timeout)


def serve_on_grid(
    handlers: Handlers,
    grid: LocalGrid,
    on_stage: StageCallback,
    compute: Compute = compute_here,
) -> None:
    """Run the server's side of the grid's job to its end."""
    config: UserConfig = {"job": grid.job, "parties": grid.parties, "timeout": handlers.timeout}
    context = Context(grid.run.run_id, 0, {}, RecordDict(), config)
    make_server_app(handlers.serve, on_stage, compute)(grid, context)
