"""The interface of an engine, and the parts that engines share."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.core.errors import UserError
from fedsynth.engine.client_app import Answer
from fedsynth.engine.placement import PARTY_FILE, refuse_elsewhere
from fedsynth.engine.server_app import ServeJob, StageCallback, ignore_stage
from fedsynth.storage.files import atomic_write, disk_errors


@dataclass(frozen=True)
class NodeSetup:
    """The driver's setup of the parties' nodes in one job, as real nodes have their own.

    The proposal is what a server sends. The rest is no part of any message."""

    proposal: str
    parties: int
    policies: str = ""  # the folder with `party-N/party.yaml` of each party N
    policy: str = ""  # the text of these files, for nodes that do not share the driver's disk
    records: tuple[int, ...] = ()  # public numbers of records per party; empty: unknown

    def party_config(self, party: int) -> str:
        """The path of a party's policy; empty if there is none."""
        return f"{self.policies}/party-{party}/{PARTY_FILE}" if self.policies else ""

    def write_policy(self, party: int) -> None:
        """Write a party's policy where it is missing or differs. Not synced to the disk: a resumed
        run writes it again."""
        path, raw = Path(self.party_config(party)), self.policy.encode()
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != raw:
                atomic_write(path, raw, durable=False)

    def for_workers(self, *, one_disk: bool) -> NodeSetup:
        """The part that workers need, which travels with every call."""
        return dataclasses.replace(self, records=(), policy="" if one_disk else self.policy)


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
        policy: str = "",
        records: Sequence[int] = (),
        sticky: bool = False,
        on_stage: StageCallback = ignore_stage,
    ) -> None:
        """Run a job with parties 0..`parties`-1 to its end. Several threads may run jobs at once.

        Args:
            job: The text of the job, for the server.
            parties: The number of parties.
            proposal: The text that parties receive; the job's own text by default.
            policies: The folder that holds `party-N/party.yaml` per party N.
            policy: The text of these files, for nodes that do not share the driver's disk.
            records: The public numbers of records per party: heavy parties are asked first.
            sticky: Answer each party in one worker only, as far as the engine has a choice.
            on_stage: Called with the index and the outcome of each stage that is complete, in the
                thread that serves the stage.

        Raises:
            PartiesUnreachable: The state of a party lies on a disk that no worker sees.
            Exception: Whatever the server's side of the job raises.
        """
        text = job if proposal is None else proposal
        nodes = NodeSetup(text, parties, policies, policy, tuple(records))
        self._check_places(policies)
        self._run(job, nodes, sticky, on_stage)

    @abstractmethod
    def _run(self, job: str, nodes: NodeSetup, sticky: bool, on_stage: StageCallback) -> None:
        """See `run`."""

    @abstractmethod
    def submit(
        self, function: Callable[..., Any], *arguments: Any
    ) -> concurrent.futures.Future[Any]:
        """Run a picklable function in a worker, beside the parties' answers."""

    @property
    def one_disk(self) -> bool:
        """True if all workers see the driver's disk."""
        return True

    def visit_parties(
        self, policies: str, function: Callable[[str], Any], parties: Sequence[int] | None = None
    ) -> dict[int, Any]:
        """Call `function(folder)` for each party whose state lies on another disk than the
        driver's, on a node that sees it; returns the results per party.

        Args:
            policies: The folder of the job's parties.
            function: A picklable function of the path of a party's folder.
            parties: The parties to visit; default: all.

        Raises:
            PartiesUnreachable: No worker sees the disk of some parties. The others were visited.
        """
        return {}

    def _check_places(self, policies: str) -> None:
        """Refuse a job with parties that this engine does not reach."""
        refuse_elsewhere(policies)

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
