"""`open_engine`: starts one of the engines and stops it.

All engines run the same two Flower apps and give bit-identical releases:
- `ray`: long-lived Ray actors on this machine or a running cluster. The default for real work.
- `inprocess`: everything in this process, one party after another. For tests and debugging.
- `flower`: Flower's own simulation. Slow; the reference for the others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import torch

from fedsynth.core.enums import EngineName
from fedsynth.core.errors import UserError, unknown
from fedsynth.engine.base import Engine, Handlers, require_gpus
from fedsynth.engine.client_app import Answer
from fedsynth.engine.flower_compat import quiet_flower
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.engine.ray_tools import DASHBOARD, TIMELINE, check_ray_tools, write_timeline
from fedsynth.engine.server_app import ServeJob

DEFAULT_TIMEOUT = 3600.0


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
    storage: Path | None = None,
    tools: Collection[str] = (),
    folder: Path = Path(),
    fit: Callable[[], str] | None = None,
    note: Callable[[str], None] = lambda _text: None,
    answer: Answer,
    serve: ServeJob,
) -> Iterator[Engine]:
    """Start an engine and stop it, with all its processes, at the end of the block.

    Args:
        name: An `EngineName`.
        workers: The number of worker processes; by default one per CPU of this machine, or as many
            as the cluster has room for.
        num_cpus: CPUs per worker.
        num_gpus: GPUs per worker.
        timeout: The seconds that a party may take per answer.
        address: A running Ray cluster to join.
        sticky: Answer each party in one worker only.
        storage: The folder on this disk below which parties keep their state. Nodes of a cluster
            that do not see it keep the state of their parties in a folder of the same path.
        tools: Tools of Ray that follow what it does; see `ray_tools`.
        folder: Where they write their files.
        fit: Called in each worker of a cluster: why no party can answer there; empty if parties
            can.
        note: Receives remarks on the nodes of a cluster.
        answer: Answers one request inside a party.
        serve: Runs a job at the server.

    Raises:
        UserError: A setting is out of its range, or this machine does not have the resources.
    """
    processes = (os.cpu_count() or 1) if workers is None else workers
    _check(
        name,
        workers=processes,
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        timeout=timeout,
        address=address,
    )
    check_ray_tools(tools, name, address)
    if num_gpus > 0 and address is None:
        wanted = 1 if name == EngineName.INPROCESS else processes
        require_gpus(wanted * num_gpus, torch.cuda.device_count(), "this machine")
    prepare_worker()
    quiet_flower()
    handlers = Handlers(answer, serve, timeout)
    engine: Engine
    if name == EngineName.INPROCESS:
        from fedsynth.engine.inprocess import InProcessEngine

        engine = InProcessEngine(handlers)
    elif name == EngineName.FLOWER:
        from fedsynth.engine.flower_simulation import FlowerEngine

        engine = FlowerEngine(handlers, processes, num_cpus, num_gpus)
    else:
        from fedsynth.engine.ray.engine import RayEngine

        engine = RayEngine(
            handlers,
            workers,
            num_cpus,
            num_gpus,
            address=address,
            sticky=sticky,
            storage=storage,
            dashboard=DASHBOARD in tools,
            fit=fit,
            note=note,
        )
    try:
        yield engine
        if TIMELINE in tools:  # not after an error or a signal, which end at once
            note(f"Ray's timeline: {write_timeline(folder)} (for Perfetto or Chrome)")
    finally:
        engine.close()


def _check(name: str, **settings: Any) -> None:
    if name not in tuple(EngineName):
        raise unknown("engine", name, EngineName)
    for key, least in (("num_cpus", 0), ("num_gpus", 0), ("workers", 1)):
        if not settings[key] >= least:
            raise UserError(f"{key}={settings[key]!r}: it must be {least} or more")
    if not settings["timeout"] > 0:
        raise UserError(f"timeout={settings['timeout']!r}: it must be more than 0 seconds")
    if settings["address"] is not None and name != EngineName.RAY:
        raise UserError(f"address={settings['address']!r} is for engine=ray only, not {name}")
