"""The engine that runs everything in this process, one party after another."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from flwr.app import Message

from fedsynth.engine.base import Handlers, NodeSetup, SerialEngine
from fedsynth.engine.client_app import make_client_app
from fedsynth.engine.local_grid import LocalGrid, PartyHost, serve_on_grid
from fedsynth.engine.server_app import StageCallback


class InProcessEngine(SerialEngine):
    """Parties answer in turn. `submit` runs a function before it returns."""

    workers = 1

    def __init__(self, handlers: Handlers) -> None:
        super().__init__(handlers)
        self._host = PartyHost(make_client_app(handlers.answer))

    def _run(self, job: str, nodes: NodeSetup, sticky: bool, on_stage: StageCallback) -> None:
        grid = InProcessGrid(job, nodes, self._host, self._turn)
        serve_on_grid(self._handlers, grid, on_stage)


class InProcessGrid(LocalGrid):
    """The parties answer in this process, one at a time: for tests, debugging and tiny jobs.

    Timeouts are not kept, because an answer that never ends cannot be interrupted here.
    """

    def __init__(self, job: str, nodes: NodeSetup, host: PartyHost, turn: threading.RLock) -> None:
        super().__init__(job, nodes)
        self._host = host
        self._turn = turn

    def deliver(self, messages: Sequence[Message], timeout: float | None) -> list[Message]:
        """Answer message by message; threads that ask at once take turns."""
        replies = []
        for message in messages:
            with self._turn:
                replies.append(self._host.handle(self.nodes, message))
        return replies
