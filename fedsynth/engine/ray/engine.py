"""The engine on long-lived Ray actors, on this machine or a running cluster."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from typing import Any

from fedsynth.engine.base import Engine, Handlers, NodeSetup
from fedsynth.engine.local_grid import serve_on_grid
from fedsynth.engine.messages import PartyFailed
from fedsynth.engine.ray.cluster import RaySession
from fedsynth.engine.ray.grid import RayGrid, submit_function, worker_spawner
from fedsynth.engine.ray.pool import RayPool
from fedsynth.engine.server_app import StageCallback

_LOG_SECONDS = 1.5  # the time that a party's own log needs to reach this terminal


class RayEngine(Engine):
    """Parties and submitted functions run on long-lived Ray actors."""

    def __init__(
        self,
        handlers: Handlers,
        workers: int,
        num_cpus: float,
        num_gpus: float,
        *,
        address: str | None,
        sticky: bool,
    ) -> None:
        self._handlers = handlers
        self._sticky = sticky
        self.workers = workers
        self._session = RaySession.open(workers, num_cpus, num_gpus, address)
        try:
            spawn = worker_spawner(handlers.answer, num_cpus, num_gpus)
            self._pool = RayPool(workers, spawn, handlers.timeout)
        except BaseException:
            self._session.close()
            raise

    def _run(self, job: str, nodes: NodeSetup, sticky: bool, on_stage: StageCallback) -> None:
        grid = RayGrid(job, nodes, self._pool, sticky or self._sticky)
        try:
            with self._pool.running_job():
                serve_on_grid(self._handlers, grid, on_stage)
        except PartyFailed:
            time.sleep(_LOG_SECONDS)
            raise

    def submit(
        self, function: Callable[..., Any], *arguments: Any
    ) -> concurrent.futures.Future[Any]:
        """See `Engine.submit`."""
        return submit_function(self._pool, function, arguments)

    def close(self) -> None:
        """See `Engine.close`."""
        self._pool.close()
        if not self._session.started:
            self._pool.kill_workers()
        self._session.close()
