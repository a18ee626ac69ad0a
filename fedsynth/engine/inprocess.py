"""The engine that runs everything in this process, one party after another."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import Message

from fedsynth.engine.base import Engine, Handlers, run_here
from fedsynth.engine.client_app import make_client_app
from fedsynth.engine.local_grid import LocalGrid, PartyHost, serve_on_grid
from fedsynth.engine.server_app import StageCallback


class InProcessEngine(Engine):
    """Parties answer in turn. `submit` runs a function before it returns."""

    workers = 1

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._host = PartyHost(make_client_app(handlers.answer))
        self._turn = threading.RLock()

    def _run(self, job: str, parties: int, sticky: bool, on_stage: StageCallback) -> None:
        grid = InProcessGrid(job, parties, self._host, self._turn)
        serve_on_grid(self._handlers, grid, on_stage)

    def submit(
        self, function: Callable[..., Any], *arguments: Any
    ) -> concurrent.futures.Future[Any]:
        """See `Engine.submit`."""
        with self._turn:
            return run_here(function, *arguments)

    def close(self) -> None:
        """See `Engine.close`."""


class InProcessGrid(LocalGrid):
    """The parties answer in this process, one at a time: for tests, debugging and tiny jobs.

    Timeouts are not kept, because an answer that never ends cannot be interrupted here.
    """

    def __init__(self, job: str, parties: int, host: PartyHost, turn: threading.RLock) -> None:
        super().__init__(job, parties)
        self._host = host
        self._turn = turn

    def deliver(self, messages: Sequence[Message], timeout: float | None) -> list[Message]:
        """Answer message by message; threads that ask at once take turns."""
        replies = []
        for message in messages:
            with self._turn:
                replies.append(self._host.handle(self.job, self.parties, message))
        return replies
