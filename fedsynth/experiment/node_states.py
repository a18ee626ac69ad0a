"""The states of the parties of a job on real nodes, as the server last heard of them.

The ServerApp runs in a process of the SuperLink. It writes what it hears into the folder of the
job, where `fedsynth nodes status` reads it.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from fedsynth.core.errors import UserError
from fedsynth.engine.server_app import ANSWERED, JOINED
from fedsynth.experiment.job import Job
from fedsynth.storage.files import atomic_write

FILE = "parties.json"
FAILURE = "node-failure.json"
PAUSE = 0.5  # seconds between two writes of mere progress


@dataclass
class PartyState:
    """The last event of a party, and the number of its answers so far."""

    event: str
    details: str = ""
    answers: int = 0


class PartyStates:
    """The states of all parties of a job, on the disk of the server."""

    def __init__(self, job: Job) -> None:
        self._path = job.server_folder() / FILE
        self._states: dict[int, PartyState] = {}
        self._turn = threading.Lock()
        self._written = 0.0

    def observe(self, party: int, event: str, details: str) -> None:
        """Note an event; answers are written from time to time, everything else at once."""
        with self._turn:
            state = self._states.setdefault(party, PartyState(event))
            state.event, state.details = event, details
            state.answers += event == ANSWERED
            progress = event in (ANSWERED, JOINED) and state.answers != 1
            if not progress or time.monotonic() > self._written + PAUSE:
                self._write()

    def write(self) -> None:
        """Write the present states."""
        with self._turn:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        stored = {str(party): asdict(state) for party, state in sorted(self._states.items())}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, json.dumps(stored).encode(), durable=False)


@functools.lru_cache(maxsize=16)
def states_of(job: str) -> PartyStates:
    """The states of the parties of the job with this text, one object per process."""
    return PartyStates(Job.parse(job))


def read_states(job: Job) -> dict[int, PartyState]:
    """The states of the parties that the server has heard of; empty before the first."""
    path = job.server_folder() / FILE
    if not path.is_file():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {int(party): PartyState(**state) for party, state in stored.items()}


def failure_file(job: Job) -> Path:
    """The file with the reason for which a job failed."""
    return job.server_folder() / FAILURE


def write_failure(job: Job, error: Exception) -> None:
    """Book a job that failed, for those who started it."""
    text = str(error) or type(error).__name__
    reason = text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
    path = failure_file(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps({"reason": reason}).encode())


def read_failure(job: Job) -> str:
    """The reason for which a job failed; empty if it did not."""
    path = failure_file(job)
    return str(json.loads(path.read_text(encoding="utf-8"))["reason"]) if path.is_file() else ""
