"""The ServerApp of real nodes: it asks for replies at once, and says what happens to each party.

Flower's grid looks for replies every three seconds, which is most of the time of a short round.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from fedsynth.engine.messages import read_job
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.engine.server_app import (
    Observe,
    PartyConnections,
    ServeJob,
    compute_here,
    ignore_stage,
)

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5  # seconds between two looks for replies
GROWTH = 1.3


def exchange_promptly(
    grid: Grid, messages: Iterable[Message], *, timeout: float | None = None
) -> list[Message]:
    """Send messages and wait for the replies, in pauses that grow from a twentieth of a second.

    Args:
        grid: A grid with a SuperLink.
        messages: The messages.
        timeout: The seconds to wait in all; None: without end.

    Returns:
        The replies that arrived in time, in any order.
    """
    waiting = set(grid.push_messages(messages))
    end = time.monotonic() + timeout if timeout is not None else None
    replies: list[Message] = []
    pause = FIRST_PAUSE
    while waiting:
        found = list(grid.pull_messages(waiting))
        replies += found
        waiting -= {reply.metadata.reply_to_message_id for reply in found}
        if not waiting or (end is not None and time.monotonic() > end):
            break
        pause = FIRST_PAUSE if found else min(pause * GROWTH, LONGEST_PAUSE)
        time.sleep(pause)
    return replies


def make_node_server_app(serve: ServeJob, observer_of: Callable[[str], Observe]) -> ServerApp:
    """Return the ServerApp of real nodes, which runs `serve` to its end.

    It computes with one thread per operation, as every engine does: releases are equal to the bit.
    The run's configuration is that of `server_app.make_server_app`.

    Args:
        serve: Runs a job at the server.
        observer_of: The observer of the parties, by the job's text.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        """Run the server's side."""
        prepare_worker()
        config = context.run_config
        job = read_job(config)
        connections = PartyConnections(
            grid,
            int(config["parties"]),
            float(config["timeout"]),
            observe=observer_of(job),
            exchange=functools.partial(exchange_promptly, grid),
        )
        serve(job, connections.ask, ignore_stage, compute_here)

    return app
