"""Evaluation as a job of its own: it reads what was released from disk and knows no party."""

from __future__ import annotations

from pathlib import Path

import torch

from fedsynth.core import ReleasedModel, SyntheticSet
from fedsynth.engine.job import Job
from fedsynth.evaluation.downstream import EvalResult, score_model, train_and_test
from fedsynth.report.store import RunDirectory
from fedsynth.scenario import tasks, test_records


def nets(job: Job, model: bool) -> int:
    """How many classifiers judge a stage: a released model is tested as it is, once."""
    return 1 if model else job.evaluation.runs


def judge(text: str, stage: int, net: int) -> EvalResult:
    """Train fresh classifier number `net` on everything released up to `stage` (or take the
    released model) and test it on the test data of all classes seen."""
    job = Job.parse(text)
    run = RunDirectory(Path(job.out))
    task = tasks(job.world)[stage]
    test = test_records(job.world)
    among = torch.isin(test.labels, torch.tensor(task.seen))
    images, labels = test.images[among], test.labels[among]
    outcome = run.load_release(job.name, stage + 1)
    if isinstance(outcome, ReleasedModel):
        return score_model(outcome, images, labels, facts=task.data, setting=job.evaluation)
    sets = [run.load_release(job.name, earlier + 1) for earlier in range(stage)]
    released = SyntheticSet.join([*(s for s in sets if isinstance(s, SyntheticSet)), outcome])
    return train_and_test(
        released,
        images,
        labels,
        task.seen,
        facts=task.data,
        setting=job.evaluation,
        key=(job.seed, "evaluation", job.method, stage, net),
    )
