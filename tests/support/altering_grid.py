"""A grid that alters replies, and the server's connections over it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import fakes
from flwr.app import Message

from fedsynth.engine.base import NodeSetup
from fedsynth.engine.client_app import make_client_app
from fedsynth.engine.inprocess import InProcessGrid
from fedsynth.engine.local_grid import PartyHost
from fedsynth.engine.server_app import PartyConnections


class AlteringGrid(InProcessGrid):
    """A grid whose replies pass through `alter` before the server reads them."""

    def __init__(
        self, job: str, parties: int, alter: Callable[[list[Message]], list[Message]]
    ) -> None:
        host = PartyHost(make_client_app(fakes.answer))
        super().__init__(job, NodeSetup(job, parties), host, threading.RLock())
        self._alter = alter
        self.sent: list[Message] = []

    def deliver(self, messages: Sequence[Message], timeout: float | None) -> list[Message]:
        self.sent += messages
        return self._alter(super().deliver(messages, timeout))


def connections(alter: Callable[[list[Message]], list[Message]] = list, job: str = '{"seed": 1}'):
    """The connections to three parties."""
    return PartyConnections(AlteringGrid(job, 3, alter), 3, 1.0)
