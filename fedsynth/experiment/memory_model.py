"""Estimates of the memory that a run takes, for `--plan`. Reads no data.

Counted are the objects that grow with the plan: the records, the replies of one exchange, the
released sets as float32, and ensembles of teachers. A single network and its activations are not:
they are small beside a process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedsynth.core.types import DatasetInfo
from fedsynth.experiment.cost_model import ends_in_model, released_images
from fedsynth.experiment.job import Job

PROCESS = 450 * 2**20  # a worker that has computed a little, with all libraries loaded
REPLIES = 2 * 32 * 2**20  # of one call, as they are and packed; the rest is left to another call
PIXEL = 4  # bytes
DRIVER_COPIES = 3  # of the replies of an exchange: as messages, as tensors, and the outcome
WORKER_COPIES = 3  # of the released images: each stage's, all together, and those trained on


def worker_bytes(jobs: Sequence[Job]) -> int:
    """The largest memory of one worker: it hosts parties, or evaluates."""
    data = jobs[0].plans[0].stage.data
    records = sum(share.records for plan in jobs[0].plans for share in plan.parties)
    hosting = REPLIES + max(_largest_reply(job) + _kept_networks(job) for job in jobs)
    evaluating = WORKER_COPIES * max(_released_bytes(job) for job in jobs)
    return PROCESS + 2 * records * math.prod(data.shape) + max(hosting, evaluating)


def driver_bytes(jobs: Sequence[Job], at_once: int) -> int:
    """The largest memory of the process that runs the jobs, `at_once` at a time."""
    exchanges = sorted((_exchange_bytes(job) for job in jobs), reverse=True)
    return PROCESS + DRIVER_COPIES * sum(exchanges[:at_once])


def _exchange_bytes(job: Job) -> int:
    """The replies that a job waits for at once: of all its stages, unless one builds on another."""
    stages = [
        sum(share.bytes_up for share in plan.parties) // max(1, plan.rounds) for plan in job.plans
    ]
    return max(stages) if job.method_impl.inherits(job.config) else sum(stages)


def _largest_reply(job: Job) -> int:
    return max(s.bytes_up // max(1, plan.rounds) for plan in job.plans for s in plan.parties)


def _kept_networks(job: Job) -> int:
    """The networks that parties keep, if one worker hosts all parties of a stage."""
    return max(sum(share.memory for share in plan.parties) for plan in job.plans)


def _released_bytes(job: Job) -> int:
    """All images that a job releases; a model is small."""
    if ends_in_model(job):
        return 0
    images = sum(released_images(job, plan) for plan in job.plans)
    info: DatasetInfo = job.plans[0].stage.data
    return images * math.prod(info.shape) * PIXEL
