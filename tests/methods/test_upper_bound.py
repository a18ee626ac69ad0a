"""The upper bound releases the records themselves."""

from __future__ import annotations

from pathlib import Path

import tiny_runs as tiny
import torch

from fedsynth.experiment.scenario import party_records
from fedsynth.storage.run_directory import RunDirectory


def test_the_released_images_are_the_records(here, tmp_path):
    job = tiny.tiny_job("upper_bound", tmp_path / "run")
    tiny.release(job, here)
    for stage in range(2):
        outcome = RunDirectory(Path(job.out)).releases.load(job.name, stage + 1)
        records = party_records(job.scenario, stage)
        assert outcome.images.dtype == torch.uint8
        assert torch.equal(outcome.images, records.images)
        assert torch.equal(outcome.labels, records.labels)
