"""Flower's own simulation as an engine: slow, and the reference for the grids of this package."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass

import psutil
from flwr.app import Context, Message, UserConfig
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid, ServerApp

from fedsynth.core.errors import UserError
from fedsynth.engine.base import Handlers, NodeSetup, SerialEngine
from fedsynth.engine.client_app import PARTY_CONFIG, make_client_app, node_of
from fedsynth.engine.server_app import StageCallback, make_server_app


class FlowerEngine(SerialEngine):
    """Flower's own simulation, one job at a time; it starts and stops Ray for each of them.

    Submitted functions run in this process."""

    def __init__(self, handlers: Handlers, workers: int, num_cpus: float, num_gpus: float) -> None:
        super().__init__(handlers)
        self.workers = workers
        self._resources = {"num_cpus": num_cpus, "num_gpus": num_gpus}

    def _run(self, job: str, nodes: NodeSetup, sticky: bool, on_stage: StageCallback) -> None:
        with self._turn:
            timeout = self._handlers.timeout
            config: UserConfig = {"job": job, "parties": nodes.parties, "timeout": timeout}
            simulate(
                make_server_app(self._handlers.serve, on_stage),
                make_client_app(self._handlers.answer, [WithNodeConfig(nodes)]),
                nodes.parties,
                config=config,
                workers=self.workers,
                **self._resources,
            )


@dataclass(frozen=True)
class WithNodeConfig:
    """A Flower mod that gives a party the proposal and the configuration of its node.

    A simulation that is started from Python has no other way to get them. Flower's own context is
    not changed."""

    nodes: NodeSetup

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Handle the message with the extended configuration."""
        extended = _with_run_config(context, {"proposal": self.nodes.proposal})
        party_config = self.nodes.party_config(node_of(context).party)
        extended.node_config = {**context.node_config, PARTY_CONFIG: party_config}
        return call_next(message, extended)


def _with_run_config(context: Context, config: UserConfig) -> Context:
    """A copy of the context with more entries in the run's configuration."""
    extended = copy.copy(context)
    extended.run_config = {**context.run_config, **config}
    return extended


def simulate(
    server_app: ServerApp,
    client_app: ClientApp,
    parties: int,
    *,
    config: UserConfig,
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
            server_app(grid, _with_run_config(context, config))
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
    """A counter of messages without a reply in time: their clients may still be busy."""
    unanswered, send = [0], grid.send_and_receive

    def counted(messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        sent = list(messages)
        replies = list(send(sent, timeout=timeout))
        unanswered[0] += len(sent) - len(replies)
        return replies

    grid.send_and_receive = counted  # type: ignore[method-assign]
    return unanswered


def _end_busy_clients() -> None:
    """Kill the simulation's client processes; it would wait for a hung party without end."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.name().startswith("ray::ClientApp"):
                process.kill()
