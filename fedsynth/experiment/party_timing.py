"""How long parties computed: kept at home, as time can tell of data, for the simulation's books."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fedsynth.experiment.job import Job
from fedsynth.storage.files import atomic_write


def add_seconds(job: Job, party: int, stage: int, seconds: float) -> None:
    """Add to what the party has computed for a stage. A disk that refuses is ignored, for nothing
    depends on it."""
    path = _file(job, party, stage)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        before = float(path.read_text()) if path.exists() else 0.0
        atomic_write(path, repr(before + seconds).encode(), durable=False)


def release_seconds(job: Job, stage: int) -> float:
    """Seconds all parties of a stage computed, added up."""
    files = [_file(job, share.party, stage) for share in job.plan(stage).parties]
    return sum(float(path.read_text()) for path in files if path.exists())


def _file(job: Job, party: int, stage: int) -> Path:
    return job.party_folder(party) / f"stage-{stage}" / "seconds"
