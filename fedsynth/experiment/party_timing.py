"""The computing time of parties, for the simulation's records.

It stays on the party's disk, because time may depend on the data.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from fedsynth.storage.files import atomic_write

FILE = "seconds"


def add_seconds(work: Path, seconds: float) -> None:
    """Add to a party's computing time in the stage of this work folder. Errors of the disk are
    ignored."""
    path = work / FILE
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        before = read_seconds(work)
        atomic_write(path, repr(before + seconds).encode(), durable=False)


def read_seconds(work: Path) -> float:
    """The computing time of a party in the stage of this work folder; 0 if there is none."""
    path = work / FILE
    return float(path.read_text()) if path.exists() else 0.0
