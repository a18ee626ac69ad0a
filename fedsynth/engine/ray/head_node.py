"""A watch over the head node of a cluster that was joined: its loss ends the run with a message.

Without it Ray ends the process itself after a minute, with a message about its own parts.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

import grpc
from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

ANSWER_SECONDS = 5.0  # for a cluster to say that it is there
PATIENCE = 30.0  # seconds without an answer, after which a head node counts as lost
LOST_EXIT = 2


def check_alive(address: str) -> None:
    """Ask the head node whether it is there.

    Raises:
        grpc.RpcError: No Ray answers at this address.
    """
    with grpc.insecure_channel(address) as channel:
        stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        request = gcs_service_pb2.CheckAliveRequest()  # type: ignore[attr-defined]
        stub.CheckAlive(request, timeout=ANSWER_SECONDS)


class HeadWatch:
    """A thread that asks the head node again and again, until it is closed or the node is lost."""

    def __init__(
        self,
        address: str,
        on_lost: Callable[[str, float], None] | None = None,
        patience: float = PATIENCE,
        interval: float = 2.0,
    ) -> None:
        """Start to watch.

        Args:
            address: Host and port of the head node.
            on_lost: Called with the address and the seconds without an answer; None: the process
                ends with a message.
            patience: The seconds without an answer after which the node is lost.
            interval: The seconds between two questions.
        """
        self._address, self._patience, self._interval = address, patience, interval
        self._on_lost, self._closed = on_lost or end_process, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="head node", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def _watch(self) -> None:
        answered = time.monotonic()
        while not self._closed.wait(self._interval):
            try:
                check_alive(self._address)
                answered = time.monotonic()
            except grpc.RpcError:
                silent = time.monotonic() - answered
                if silent >= self._patience and not self._closed.is_set():
                    self._on_lost(self._address, silent)
                    return


def end_process(address: str, silent: float) -> None:
    """End this process with a message: calls to a cluster without a head node do not return."""
    print(
        f"\nerror: the head node of the Ray cluster at {address} has not answered for {silent:.0f} "
        "s: it has ended or cannot be reached. What is done is kept in the run directory: go on "
        "with --resume and that directory, with address= of a cluster that runs, or with "
        "engine=inprocess.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(LOST_EXIT)
