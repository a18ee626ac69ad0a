"""The progress of a run: tiny files written by parties, and their display.

Nothing here decides anything: a run without progress gives the same result.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import NamedTuple, Protocol

from fedsynth.storage.files import atomic_write

WRITE_INTERVAL = 0.5  # seconds between two progress files of one party


class StageProgress(NamedTuple):
    """The progress of a party or a job in its current stage."""

    stage: int
    done: int
    total: int


_last_write: dict[tuple[str, int], tuple[float, int]] = {}


def write_progress(folder: str | Path, party: int, stage: int, done: int, total: int) -> None:
    """Store the progress of a party; cheap enough to call after every step.

    Writes at most twice a second, but always the start and the end of a stage. Errors of the disk
    are ignored, so that progress never stops a party.
    """
    key, now = (str(folder), party), time.monotonic()
    moment, last_stage = _last_write.get(key, (-WRITE_INTERVAL, stage))
    if now - moment < WRITE_INTERVAL and done != total and stage == last_stage:
        return
    _last_write[key] = (now, stage)
    text = json.dumps({"party": party, "stage": stage, "done": done, "total": total})
    with contextlib.suppress(OSError):
        Path(folder).mkdir(parents=True, exist_ok=True)
        atomic_write(Path(folder) / f"party-{party}.json", text.encode(), durable=False)


def read_progress(folder: str | Path) -> dict[int, StageProgress]:
    """The last progress of every party, by party; a file that cannot be read is left out."""
    progress = {}
    for path in sorted(Path(folder).glob("party-*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            fields = json.loads(path.read_text(encoding="utf-8"))
            progress[int(fields["party"])] = StageProgress(
                int(fields["stage"]), int(fields["done"]), int(fields["total"])
            )
    return dict(sorted(progress.items()))


class ProgressDisplay(Protocol):
    """The display that a `Runner` reports to."""

    def job(self, name: str, stages: int) -> None:
        """Announce a job."""

    def update(
        self, name: str, at: StageProgress, *, spent: float | None = None, note: str = ""
    ) -> None:
        """A job is there (stages from 1) and has spent this epsilon so far."""

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
