"""Accuracy of classifiers that are trained on n real records, for a run that is there already.

It tells what a release is worth: the number of real records that a receiver would need for the same
accuracy. The numbers are computed from raw training records and are not private, like those of any
reference. Nothing but accuracies is written, and test records are used for the test alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from statistics import fmean

from fedsynth.core.errors import UserError
from fedsynth.engine.base import Engine
from fedsynth.evaluation.types import EvalResult
from fedsynth.experiment.evaluate import evaluate_on_real, number_of_classifiers
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.job import Job
from fedsynth.experiment.reevaluation import EVALUATIONS
from fedsynth.storage.files import disk_errors, make_directories
from fedsynth.storage.metrics import Metric, MetricsFile
from fedsynth.storage.run_directory import RunDirectory

FILE = "real_records.csv"
METHOD = "real_records"
PREFIX = "accuracy_with_"  # followed by the number of records


def real_records_file(run: RunDirectory) -> Path:
    """The metrics file of these numbers, below the run."""
    return run.path / EVALUATIONS / FILE


def measure_real_records(
    run: RunDirectory, experiment: Experiment, counts: Sequence[int], engine: Engine
) -> Path:
    """Train and test classifiers on some of the real records, by the evaluation of the run.

    Args:
        run: The run.
        experiment: Its jobs.
        counts: The numbers of records, with which all classes of the last stage have at least one.
        engine: An open engine; its workers train the classifiers.

    Returns:
        The metrics file, to which these numbers are added.

    Raises:
        UserError: There are more classes than records, or fewer records than wanted.
    """
    stages = experiment.stages
    last = len(stages) - 1
    classes, total = len(stages[last].seen), sum(p.records for s in stages for p in s.parties)
    for count in counts:
        if not classes <= count <= total:
            raise UserError(
                f"real={count} must be a number of records from {classes} (one per class) to "
                f"{total:,} (all that the parties hold)."
            )
    by_seed: dict[int, Job] = {}
    for job in experiment.jobs:
        by_seed.setdefault(job.seed, job)
    pending: dict[tuple[int, int], list[Future[EvalResult]]] = {
        (seed, count): [
            engine.submit(evaluate_on_real, job.text(), last, count, number)
            for number in range(number_of_classifiers(job, is_model=False))
        ]
        for seed, job in by_seed.items()
        for count in counts
    }
    file = real_records_file(run)
    with disk_errors(file):
        make_directories(file.parent)
    metrics = MetricsFile(file)
    for (seed, count), futures in pending.items():
        accuracy = fmean(future.result().accuracy for future in futures)
        metrics.add([Metric(METHOD, math.inf, seed, last + 1, f"{PREFIX}{count}", accuracy)])
    metrics.compact()
    return metrics.path
