"""The events of a simulated run: what took how long, for `events.jsonl`.

Processes send them as messages to the driver, which writes them into the run directory. The kinds:

* `answer`: one answer of a party: seconds of computing and of them of noise, bytes of its arrays.
* `round`: one request of the server and its answers: seconds until the last one, bytes of arrays.
* `evaluation`: the training and test of one classifier: losses and accuracies by step.

Times of parties and losses on data are no releases: only simulated parties state them, and a run on
real nodes writes no events (`docs/sharp_edges.md`).
"""

from __future__ import annotations

import functools
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedsynth.core.messages import Arrays, Release, Request
from fedsynth.storage.message_log import send_message

ANSWER, ROUND, EVALUATION = "answer", "round", "evaluation"
KINDS = (ANSWER, ROUND, EVALUATION)


def send_event(folder: Path, kind: str, start: float, **facts: Any) -> None:
    """Send an event that ends now.

    Args:
        folder: The folder of messages.
        kind: One of `KINDS`.
        start: The time of its start, in seconds since 1970.
        facts: Further fields.
    """
    event = {
        "kind": kind,
        "start": round(start, 4),
        "seconds": round(time.time() - start, 4),
        **facts,
        "process": f"{socket.gethostname()}-{os.getpid()}",
        "memory": peak_memory(),
    }
    send_message(folder, event)


def peak_memory() -> int:
    """The most memory that this process has held so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def array_bytes(arrays: Iterable[Arrays]) -> int:
    """The bytes of the numbers of arrays, as they travel."""
    return sum(value.nbytes for some in arrays for value in some.values())


def recorded(ask: Callable[..., list[Release]], folder: Path, job: str) -> Any:
    """`ask`, with an event for each round.

    Args:
        ask: Asks parties, as in `engine.server_app`.
        folder: The folder of messages.
        job: The name of the job.
    """

    @functools.wraps(ask)
    def asked(
        parties: Any, stage: int, request: Request | Mapping[int, Request], *more: Any, **named: Any
    ) -> list[Release]:
        start = time.time()
        answers = ask(parties, stage, request, *more, **named)
        if parties:
            requests = (
                [request] * len(parties) if isinstance(request, Request) else [*request.values()]
            )
            send_event(
                folder,
                ROUND,
                start,
                job=job,
                stage=stage + 1,
                round=requests[0].round,
                request=requests[0].kind,
                parties=len(parties),
                answers=len(answers),
                bytes_down=array_bytes(each.arrays for each in requests),
                bytes_up=array_bytes(answer.arrays for answer in answers),
            )
        return answers

    return asked
