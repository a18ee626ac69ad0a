"""Everything of Flower that is private or deprecated, and Flower's own simulation as an engine.

Tested with flwr 1.41; the project pins that range. No other file may name these things, so an
upgrade of Flower is an upgrade of this file. Flower's simulation is the conformance reference for
the grids of this package: slow, and not ours. Real nodes need nothing from here: `flwr run` takes
the apps of `engine.apps` as they are.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import psutil
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedsynth.core.errors import UserError

__all__ = ["LOCAL_RUN", "Run", "identify_process", "local_run", "quiet_flower", "simulate", "stamp"]

LOCAL_RUN = 1
_CURATOR_NODE = 1


def quiet_flower() -> None:
    """Keep Flower from calling home and from installing packages, here and in what we start."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"


def identify_process() -> None:
    """Say who writes messages in this process, where no Flower runtime has said so."""
    if TaskIdentity._run_id is None:
        TaskIdentity.run_id = LOCAL_RUN
        TaskIdentity.task_id = 1
        TaskIdentity.node_id = _CURATOR_NODE


def local_run() -> Run:
    """The description of a run that no SuperLink knows."""
    return Run.create_empty(LOCAL_RUN)


def stamp(message: Message) -> str:
    """Give a message an id, as a SuperLink would, so that its reply can name it."""
    message_id = uuid.uuid4().hex
    message.metadata.__dict__["_message_id"] = message_id
    return message_id


@dataclass(frozen=True)
class WithConfig:
    """A Flower mod that adds to the run's configuration, which a simulation started from Python
    cannot be given. The context Flower keeps is left as it is."""

    config: dict[str, bool | float | int | str]

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Go on with the configuration in place."""
        return call_next(message, self.extend(context))

    def extend(self, context: Context) -> Context:
        """The same context with more configuration."""
        extended = copy.copy(context)
        extended.run_config = {**context.run_config, **self.config}
        return extended


def simulate(
    server_app: ServerApp,
    client_app: ClientApp,
    parties: int,
    *,
    config: WithConfig,
    workers: int,
    num_cpus: float,
    num_gpus: float,
) -> None:
    """Run both apps in Flower's own simulation, on a Ray of its own, to their end.

    Raises what the ServerApp raises. A process that dies is not replaced by Flower: the parties it
    hosted are gone from then on. Must not be called while this process uses Ray otherwise,
    because the simulation shuts Ray down when it ends.
    """
    import ray
    from flwr.simulation import run_simulation

    if ray.is_initialized():
        raise UserError("engine=flower needs a process of its own: Ray is in use in this one")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    failures: list[BaseException] = []
    guarded = ServerApp()

    @guarded.main()
    def main(grid: Grid, context: Context) -> None:
        unanswered = _count_unanswered(grid)
        try:
            server_app(grid, config.extend(context))
        except BaseException as error:
            failures.append(error)
        if failures or unanswered[0]:
            _end_busy_clients()

    try:
        run_simulation(
            guarded,
            client_app,
            parties,
            backend_config={
                "init_args": {
                    "address": "local",
                    "num_cpus": max(1, math.ceil(workers * num_cpus)),
                    "include_dashboard": False,
                    "logging_level": logging.ERROR,
                    "log_to_driver": True,
                },
                "client_resources": {"num_cpus": num_cpus, "num_gpus": num_gpus},
            },
        )
    except Exception:
        if not failures:
            raise
    if failures:
        raise failures[0]


def _count_unanswered(grid: Grid) -> list[int]:
    """A counter of messages nobody replied to in time: somebody may still be busy with them."""
    unanswered, send = [0], grid.send_and_receive

    def counted(messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        sent = list(messages)
        replies = list(send(sent, timeout=timeout))
        unanswered[0] += len(sent) - len(replies)
        return replies

    grid.send_and_receive = counted  # type: ignore[method-assign]
    return unanswered


def _end_busy_clients() -> None:
    """Kill the simulation's client processes: it would wait for a hung party without end."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.name().startswith("ray::ClientApp"):
                process.kill()
