"""The engines behind one door: `open_engine` starts one, `run` takes a job to its end.

All engines run the same two Flower apps and give bit-identical releases:
- `ray`: long-lived Ray actors on this machine or a running cluster. The default for real work.
- `inprocess`: everything in this process, one party after another. For tests and debugging.
- `flower`: Flower's own simulation. Slow; the reference the others are measured against.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fedsynth.core.errors import UserError, unknown
from fedsynth.engine.process_setup import prepare_worker

if TYPE_CHECKING:
    from fedsynth.engine.apps import Answer, Conversation
    from fedsynth.engine.local_grid import LocalGrid

ENGINES = ("ray", "inprocess", "flower")
DEFAULT_TIMEOUT = 3600.0
_LOG_SECONDS = 1.5  # what a party's own log may need to this terminal before Ray is stopped


class Engine(ABC):
    """Runs jobs. Made by `open_engine`, and of no use after its block."""

    workers: int

    @abstractmethod
    def run(self, job: str, parties: int, *, sticky: bool = False) -> None:
        """Run the curator's conversation about `job` with `parties` parties to its end.

        Blocks; raises what the conversation raises. Several threads may run jobs at once. With
        `sticky` each party is answered by one worker, as far as the engine has a choice."""

    @abstractmethod
    def submit(
        self, function: Callable[..., Any], *arguments: Any
    ) -> concurrent.futures.Future[Any]:
        """Run a picklable function in a worker, beside what the parties do."""

    @abstractmethod
    def close(self) -> None:
        """Stop everything this engine started. Safe to repeat."""


@dataclass(frozen=True)
class _Handlers:
    """What happens inside a party, what happens at the curator, and how long to wait."""

    answer: Answer
    conversation: Conversation
    timeout: float


class InProcessEngine(Engine):
    """Everything here, in turns. Jobs of `submit` run at once, before it returns."""

    workers = 1

    def __init__(self, sides: _Handlers) -> None:
        from fedsynth.engine.apps import make_client_app
        from fedsynth.engine.local_grid import PartyHost

        self._sides = sides
        self._host = PartyHost(make_client_app(sides.answer))
        self._turn = threading.RLock()

    def run(self, job: str, parties: int, *, sticky: bool = False) -> None:
        """See `Engine.run`."""
        from fedsynth.engine.local_grid import InProcessGrid

        _serve(self._sides, InProcessGrid(job, parties, self._host, self._turn))

    def submit(
        self, function: Callable[..., Any], *arguments: Any
    ) -> concurrent.futures.Future[Any]:
        """See `Engine.submit`."""
        with self._turn:
            return _computed(function, *arguments)

    def close(self) -> None:
        """See `Engine.close`."""


class FlowerEngine(Engine):
    """Flower's own simulation, one job at a time; it starts and stops Ray for each of them.
    Jobs of `submit` run in this process."""

    def __init__(self, sides: _Handlers, workers: int, num_cpus: float, num_gpus: float) -> None:
        self._sides = sides
        self.workers = workers
        self._resources = {"num_cpus": num_cpus, "num_gpus": num_gpus}
        self._turn = threading.Lock()

    def run(self, job: str, parties: int, *, sticky: bool = False) -> None:
        """See `Engine.run`."""
        from fedsynth.engine.apps import make_client_app, make_server_app
        from fedsynth.engine.flower_compat import WithConfig, simulate

        with self._turn:
            config = WithConfig({"job": job, "parties": parties, "timeout": self._sides.timeout})
            simulate(
                make_server_app(self._sides.conversation),
                make_client_app(self._sides.answer, [config]),
                parties,
                config=config,
                workers=self.workers,
                **self._resources,
            )

    def submit(
        self, function: Callable[..., Any], *arguments: Any
    ) -> concurrent.futures.Future[Any]:
        """See `Engine.submit`."""
        with self._turn:
            return _computed(function, *arguments)

    def close(self) -> None:
        """See `Engine.close`."""


class RayEngine(Engine):
    """Parties and jobs on long-lived Ray actors."""

    def __init__(
        self,
        sides: _Handlers,
        workers: int,
        num_cpus: float,
        num_gpus: float,
        *,
        address: str | None,
        sticky: bool,
    ) -> None:
        from fedsynth.engine.ray.cluster import RaySession

        self._sides = sides
        self._sticky = sticky
        self.workers = workers
        self._session = RaySession.open(workers, num_cpus, num_gpus, address)
        try:
            from fedsynth.engine.ray.grid import worker_spawner
            from fedsynth.engine.ray.pool import RayPool

            spawn = worker_spawner(sides.answer, num_cpus, num_gpus)
            self._pool = RayPool(workers, spawn, sides.timeout)
        except BaseException:
            self._session.close()
            raise

    def run(self, job: str, parties: int, *, sticky: bool = False) -> None:
        """See `Engine.run`."""
        from fedsynth.engine.messages import PartyFailed
        from fedsynth.engine.ray.grid import RayGrid

        try:
            with self._pool.conversation():
                _serve(self._sides, RayGrid(job, parties, self._pool, sticky or self._sticky))
        except PartyFailed:
            time.sleep(_LOG_SECONDS)
            raise

    def submit(
        self, function: Callable[..., Any], *arguments: Any
    ) -> concurrent.futures.Future[Any]:
        """See `Engine.submit`."""
        from fedsynth.engine.ray.grid import submit_job

        return submit_job(self._pool, function, arguments)

    def close(self) -> None:
        """See `Engine.close`."""
        self._pool.close()
        if not self._session.started:
            self._pool.kill_workers()
        self._session.close()


def _serve(sides: _Handlers, grid: LocalGrid) -> None:
    from flwr.app import Context, RecordDict, UserConfig

    from fedsynth.engine.apps import make_server_app

    config: UserConfig = {"job": grid.job, "parties": grid.parties, "timeout": sides.timeout}
    context = Context(grid.run.run_id, 0, {}, RecordDict(), config)
    make_server_app(sides.conversation)(grid, context)


def _computed(function: Callable[..., Any], *arguments: Any) -> concurrent.futures.Future[Any]:
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    try:
        future.set_result(function(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future


def require_gpus(wanted: float, existing: float, where: str) -> None:
    """Refuse at once what Ray would wait for without end."""
    if wanted > existing:
        raise UserError(
            f"num_gpus: {wanted:g} GPUs are needed for all workers together, and {where} has "
            f"{existing:g}. Ask for fewer (num_gpus=0 for none, fractions share one) or use fewer "
            "workers."
        )


@contextlib.contextmanager
def open_engine(
    name: str,
    *,
    workers: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    timeout: float = DEFAULT_TIMEOUT,
    address: str | None = None,
    sticky: bool = False,
    answer: Answer,
    conversation: Conversation,
) -> Iterator[Engine]:
    """Start the engine `name` and stop it, with all its processes, at the end of the block.

    `workers` processes (default: one a CPU) get `num_cpus` and `num_gpus` each; `timeout` is what
    a party may take for one answer, in seconds; `address` joins a running Ray cluster. `answer` and
    `conversation` are what happens inside a party and at the server.
    """
    workers = (os.cpu_count() or 1) if workers is None else workers
    _check(
        name,
        workers=workers,
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        timeout=timeout,
        address=address,
    )
    if num_gpus > 0 and address is None:
        processes = 1 if name == "inprocess" else workers
        require_gpus(processes * num_gpus, torch.cuda.device_count(), "this machine")
    prepare_worker()
    from fedsynth.engine.flower_compat import quiet_flower

    quiet_flower()
    how = _Handlers(answer, conversation, timeout)
    engine: Engine
    if name == "inprocess":
        engine = InProcessEngine(how)
    elif name == "flower":
        engine = FlowerEngine(how, workers, num_cpus, num_gpus)
    else:
        engine = RayEngine(how, workers, num_cpus, num_gpus, address=address, sticky=sticky)
    try:
        yield engine
    finally:
        engine.close()


def _check(name: str, **settings: Any) -> None:
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    for key, least in (("num_cpus", 0), ("num_gpus", 0), ("workers", 1)):
        if not settings[key] >= least:
            raise UserError(f"{key}={settings[key]!r}: it must be {least} or more")
    if not settings["timeout"] > 0:
        raise UserError(f"timeout={settings['timeout']!r}: it must be more than 0 seconds")
    if settings["address"] is not None and name != "ray":
        raise UserError(f"address={settings['address']!r} is for engine=ray only, not {name}")
