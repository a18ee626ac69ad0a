"""The progress of a run: messages of parties and server, and their display.

Nothing here decides anything: a run without progress gives the same result.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple, Protocol

from fedsynth.storage.message_log import send_message

WRITE_INTERVAL = 0.5  # seconds between two messages of one party
PROGRESS = "progress"  # the kind of these messages


class StageProgress(NamedTuple):
    """The progress of a party or a job in its current stage."""

    stage: int
    done: int
    total: int


_last_write: dict[tuple[str, str, int], tuple[float, int]] = {}


def write_progress(folder: str | Path, job: str, party: int, at: StageProgress) -> None:
    """Send the progress of a party in a job; cheap enough to call after every step.

    Sends at most twice a second, but always the start and the end of a stage.
    """
    key, now = (str(folder), job, party), time.monotonic()
    moment, last_stage = _last_write.get(key, (-WRITE_INTERVAL, at.stage))
    if now - moment < WRITE_INTERVAL and at.done != at.total and at.stage == last_stage:
        return
    _last_write[key] = (now, at.stage)
    message = {"kind": PROGRESS, "job": job, "party": party, "at": list(at)}
    send_message(folder, message)


class ProgressDisplay(Protocol):
    """The display that a `Runner` reports to."""

    def job(self, name: str, stages: int) -> None:
        """Announce a job."""

    def update(
        self,
        name: str,
        at: StageProgress,
        *,
        spent: float | None = None,
        note: str = "",
        released: bool = False,
    ) -> None:
        """A job is there (stages from 1), has spent this epsilon, and released the stage or not."""

    def evaluation(self, name: str, done: int, total: int) -> None:
        """`done` of `total` classifiers of a job's evaluation are trained."""

    def finish(self, name: str, text: str) -> None:
        """A job is complete."""

    def message(self, text: str) -> None:
        """A line of text."""


def duration(seconds: float) -> str:
    """Seconds in words: 8 s, 3 min 05 s, 2 h 10 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
