"""The computing time of parties, for the simulation's records.

It stays on the party's disk, because time may depend on the data.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from fedsynth.experiment.job import Job
from fedsynth.storage.files import atomic_write


def add_seconds(job: Job, party: int, stage: int, seconds: float) -> None:
    """Add to the computing time of a party in a stage. Errors of the disk are ignored."""
    path = _file(job, party, stage)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        before = float(path.read_text()) if path.exists() else 0.0
        atomic_write(path, repr(before + seconds).encode(), durable=False)


def release_seconds(job: Job, stage: int) -> float:
    """The total computing time of all parties of a stage."""
    files = [_file(job, share.party, stage) for share in job.plan(stage).parties]
    return sum(float(path.read_text()) for path in files if path.exists())


def _file(job: Job, party: int, stage: int) -> Path:
    return job.party_folder(party) / f"stage-{stage}" / "seconds"
