"""The interface of an engine, and the parts that engines share."""

from __future__ import annotations

import concurrent.futures
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedsynth.core.errors import UserError
from fedsynth.engine.client_app import Answer
from fedsynth.engine.server_app import ServeJob, StageCallback, ignore_stage


@dataclass(frozen=True)
class NodeSetup:
    """The driver's setup of the parties' nodes in one job, as real nodes have their own.

    The proposal is what a server sends. The rest is no part of any message."""

    proposal: str
    parties: int
    policies: str = ""  # the folder with `party-N/party.yaml` of each party N

    def party_config(self, party: int) -> str:
        """The path of a party's policy; empty if there is none."""
        return f"{self.policies}/party-{party}/party.yaml" if self.policies else ""


@dataclass(frozen=True)
class Handlers:
    """The two sides of every job, and the seconds that a party may take per answer."""

    answer: Answer
    serve: ServeJob
    timeout: float


class Engine(ABC):
    """Runs jobs. Made by `factory.open_engine` and closed at the end of its block."""

    workers: int

    def run(
        self,
        job: str,
        parties: int,
        *,
        proposal: str | None = None,
        policies: str = "",
        sticky: bool = False,
        on_stage: StageCallback = ignore_stage,
    ) -> None:
        """Run a job with parties 0..`parties`-1 to its end. Several threads may run jobs at once.

        Args:
            job: The text of the job, for the server.
            parties: The number of parties.
            proposal: The text that parties receive; the job's own text by default.
            policies: The folder that holds `party-N/party.yaml` per party N.
            sticky: Answer each party in one worker only, as far as the engine has a choice.
            on_stage: Called with the index and the outcome of each stage that is complete, in the
                thread that serves the stage.

        Raises:
            Exception: Whatever the server's side of the job raises.
        """
        nodes = NodeSetup(job if proposal is None else proposal, parties, policies)
        self._run(job, nodes, sticky, on_stage)

    @abstractmethod
    def _run(self, job: str, nodes: NodeSetup, sticky: bool, on_stage: StageCallback) -> None:
        """See `run`."""

    @abstractmethod
    def submit(
        self, function: Callable[..., Any], *arguments: Any
    ) -> concurrent.futures.Future[Any]:
        """Run a picklable function in a worker, beside the parties' answers."""

    @abstractmethod
    def close(self) -> None:
        """Stop everything this engine started. Safe to repeat."""


class SerialEngine(Engine):
    """An engine that runs submitted functions in this process, one at a time, before it returns."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._turn = threading.RLock()

    def submit(
        self, function: Callable[..., Any], *arguments: Any
    ) -> concurrent.futures.Future[Any]:
        """See `Engine.submit`."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self._turn:
            try:
                future.set_result(function(*arguments))
            except Exception as error:
                future.set_exception(error)
        return future

    def close(self) -> None:
        """See `Engine.close`."""


def require_gpus(wanted: float, existing: float, where: str) -> None:
    """Refuse at once a request that Ray would queue without end."""
    if wanted > existing:
        raise UserError(
            f"num_gpus: {wanted:g} GPUs are needed for all workers together, and {where} has "
            f"{existing:g}. Ask for fewer (num_gpus=0 for none, fractions share one) or use fewer "
            "workers."
        )
