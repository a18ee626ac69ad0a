"""The computing time of parties, for the simulation's records.

It stays on the party's disk, because time may depend on the data.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from fedsynth.experiment.job import Job
from fedsynth.storage.files import atomic_write

FILE = "seconds"


def add_seconds(work: Path, seconds: float) -> None:
    """Add to a party's computing time in the stage of this work folder. Errors of the disk are
    ignored."""
    path = work / FILE
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        before = float(path.read_text()) if path.exists() else 0.0
        atomic_write(path, repr(before + seconds).encode(), durable=False)


def release_seconds(job: Job, stage: int) -> float:
    """The total computing time of all parties of a stage."""
    folders = [job.party_folder(share.party) for share in job.plan(stage).parties]
    files = [job.work_folder(folder, stage) / FILE for folder in folders]
    return sum(float(path.read_text()) for path in files if path.exists())
