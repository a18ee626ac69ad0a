"""The engine on long-lived Ray actors, on this machine or a running cluster."""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedsynth.engine.base import Engine, Handlers, NodeSetup
from fedsynth.engine.local_grid import serve_on_grid
from fedsynth.engine.messages import PartyFailed
from fedsynth.engine.placement import Place, Placement
from fedsynth.engine.ray.calls import DiskLost
from fedsynth.engine.ray.cluster import RaySession
from fedsynth.engine.ray.grid import RayGrid, submit_function, worker_spawner
from fedsynth.engine.ray.pool import Note, RayPool
from fedsynth.engine.server_app import StageCallback
from fedsynth.storage.disk_identity import DiskProbe, disk_probe

_LOG_SECONDS = 1.5  # the time that a party's own log needs to reach this terminal


class RayEngine(Engine):
    """Parties and submitted functions run on long-lived Ray actors.

    On a cluster whose nodes do not share the driver's disk, a party's state stays on the disk of
    the node that the party was placed on.

    Args:
        handlers: The two sides of every job.
        workers: The number of actors; None: as many as this machine or the cluster has room for.
        num_cpus: CPUs per worker.
        num_gpus: GPUs per worker.
        address: A running cluster to join.
        sticky: Answer each party in one worker only.
        storage: The folder on the driver's disk below which parties keep their state.
        dashboard: Start Ray's dashboard too.
        fit: Called in a worker of a cluster: why no party can answer there; empty if parties can.
        note: Receives remarks on nodes.
    """

    def __init__(
        self,
        handlers: Handlers,
        workers: int | None,
        num_cpus: float,
        num_gpus: float,
        *,
        address: str | None,
        sticky: bool,
        storage: Path | None,
        dashboard: bool,
        fit: Callable[[], str] | None,
        note: Note,
    ) -> None:
        self._handlers = handlers
        self._sticky = sticky
        self._note = note
        self._said_one_disk: bool | None = None
        self._probe: DiskProbe | None = None
        self._stack = contextlib.ExitStack()
        self._session = RaySession.open(workers, num_cpus, num_gpus, address, dashboard=dashboard)
        if self._session.dashboard:
            note(f"Ray's dashboard: {self._session.dashboard}, until the end of the run")
        self.workers = self._session.workers
        self._stack.callback(self._session.close)
        try:
            if storage is not None and address is not None:
                self._probe = self._stack.enter_context(disk_probe(storage))
            spawn = worker_spawner(handlers.answer, num_cpus, num_gpus, self._probe, fit)
            joined = address is not None
            self._pool = RayPool(self.workers, spawn, handlers.timeout, note, joined=joined)
        except BaseException:
            self._stack.close()
            raise

    def _run(self, job: str, nodes: NodeSetup, sticky: bool, on_stage: StageCallback) -> None:
        placement = self._placement(nodes.policies)
        _ = self.one_disk  # waits until it is known, and says it
        grid = RayGrid(job, nodes, self._pool, sticky or self._sticky, placement)
        try:
            with self._pool.running_job():
                serve_on_grid(self._handlers, grid, on_stage, self._compute)
        except PartyFailed:
            time.sleep(_LOG_SECONDS)
            raise

    def submit(
        self, function: Callable[..., Any], *arguments: Any
    ) -> concurrent.futures.Future[Any]:
        """See `Engine.submit`."""
        disk = self._probe.identity if self._probe and self.one_disk else ""
        return submit_function(self._pool, function, arguments, disk=disk)

    def _compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of a running job in a worker, as a part of this job."""
        return submit_function(
            self._pool, function, arguments, needs_data=False, of_job=True
        ).result()

    @property
    def one_disk(self) -> bool:
        """See `Engine.one_disk`; says what was found."""
        if self._probe is None:
            return True
        if self._said_one_disk is None:
            self._pool.await_places()
        disks = self._pool.disks()
        one = disks <= {self._probe.identity}
        if self._said_one_disk is not one:
            self._said_one_disk = one
            self._note(
                "all workers so far see this run directory"
                if one
                else f"the nodes do not share this run directory ({len(disks)} disks): each party "
                "keeps its ledger, keys and unfinished work on the disk of its node"
            )
            for reason in self._pool.unfit():
                self._note(f"no party answers on {reason}")
        return one

    def visit_parties(
        self, policies: str, function: Callable[[str], Any], parties: Sequence[int] | None = None
    ) -> dict[int, Any]:
        """See `Engine.visit_parties`."""
        placement = self._placement(policies)
        if placement is None:
            return {}
        by_disk: dict[str, list[int]] = {}
        for party, place in placement.elsewhere().items():
            if parties is None or party in parties:
                by_disk.setdefault(place.disk, []).append(party)
        calls = {
            disk: submit_function(
                self._pool,
                _visit,
                (policies, function, some),
                disk=disk,
                needs_data=False,
                brief=True,
            )
            for disk, some in by_disk.items()
        }
        found: dict[int, Any] = {}
        lost: list[int] = []
        for disk, call in calls.items():
            try:
                found |= call.result()
            except DiskLost:
                lost += by_disk[disk]
        if lost:
            raise placement.unreachable(lost)
        return found

    def _placement(self, policies: str) -> Placement | None:
        """The places of the parties of a job; None: all state lies on the driver's disk."""
        if self._probe is None or not policies:
            return None
        return Placement(policies, Place(self._probe.identity, f"{socket.gethostname()} (driver)"))

    def _check_places(self, policies: str) -> None:
        if self._probe is None:
            super()._check_places(policies)

    def close(self) -> None:
        """See `Engine.close`."""
        self._pool.close()
        if not self._session.started:
            self._pool.kill_workers()
        self._stack.close()


def _visit(policies: str, function: Callable[[str], Any], parties: Sequence[int]) -> dict[int, Any]:
    return {party: function(f"{policies}/party-{party}") for party in parties}
