"""The estimate of memory: it grows with what a process holds, and is near what one takes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs as tiny
import torch

from fedsynth.engine.ray.grid import MOST_REPLY_BYTES
from fedsynth.experiment import memory_model as memory
from fedsynth.experiment.job import Job
from fedsynth.nn.ensembles.teacher_config import TeacherConfig


def ldpdc(parties: int, spc: int) -> Job:
    """A job whose parties release `spc` images per class."""
    job = tiny.tiny_job("ldpdc", Path(), "together", {"spc": spc})
    scenario = dataclasses.replace(job.scenario, parties=parties, holdout=0)
    return dataclasses.replace(job, scenario=scenario)


def test_many_large_replies_are_counted_in_the_driver_and_bounded_in_workers() -> None:
    small, large = ldpdc(10, 20), ldpdc(50, 20)
    replies = sum(share.bytes_up for share in large.plans[0].parties)
    assert memory.driver_bytes([large], 1) - memory.PROCESS == 3 * replies
    assert memory.driver_bytes([large, small], 1) == memory.driver_bytes([large], 1)
    assert memory.driver_bytes([large, small], 2) > memory.driver_bytes([large], 1)
    assert memory.REPLIES == 2 * MOST_REPLY_BYTES
    evaluated = 3 * 50 * 20 * 10 * 28 * 28 * 4
    records = sum(share.records for share in large.plans[0].parties)
    images = memory.worker_bytes([large]) - memory.PROCESS - 2 * records * 28 * 28
    assert images == pytest.approx(max(evaluated, memory.REPLIES), rel=0.2)


@pytest.mark.parametrize("method", ["datalens", "g_pate", "pate_gan"])
def test_ensembles_of_teachers_are_counted(method: str) -> None:
    few, many = (
        tiny.tiny_job(method, Path(), "together", {"teachers": teachers, "hidden": 4096})
        for teachers in (50, 100)
    )
    kept = [sum(share.memory for share in job.plans[0].parties) for job in (few, many)]
    assert kept[0] > 0
    assert kept[1] == pytest.approx(2 * kept[0], rel=0.1)
    grown = memory.worker_bytes([many]) - memory.worker_bytes([few])
    assert grown == pytest.approx(kept[1] - kept[0], rel=0.1)


def test_published_teachers_take_what_was_measured() -> None:
    """The state of DataLens's 4,000 teachers for MNIST is 8.9 GB in memory and on disk."""
    shape = TeacherConfig((1, 28, 28), 10, batch=15, channels=32, hidden=256)
    assert shape.state_bytes(4000, torch.bfloat16) == pytest.approx(8.9e9, rel=0.01)


def test_a_process_takes_about_as_much_as_is_assumed() -> None:
    """A worker with the sessions of a party and the server loaded."""
    code = (
        "import psutil, ray, fedsynth.experiment.client_session, fedsynth.experiment.runner;"
        "from fedsynth.engine.ray import engine; print(psutil.Process().memory_info().rss)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tiny.ROOT
    )
    assert 0.5 * memory.PROCESS < int(found.stdout) < 1.2 * memory.PROCESS
