"""Evaluation of a stage, from the releases on disk alone. Runs in a worker."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch

from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.core.types import Stage
from fedsynth.data.fetch.fetch import data_directory
from fedsynth.engine.base import Engine
from fedsynth.evaluation.image_quality import ImageQuality, measure_image_quality
from fedsynth.evaluation.real_data_baselines import real_data_baseline
from fedsynth.evaluation.train_classifier import (
    Curves,
    EvaluationTask,
    score_model,
    train_and_test,
)
from fedsynth.evaluation.types import EvalResult, subsample
from fedsynth.experiment.events import EVALUATION, send_event
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import party_records, scenario_stages, test_records
from fedsynth.experiment.scenario_config import dataset_info
from fedsynth.storage.run_directory import RunDirectory


def number_of_classifiers(job: Job, is_model: bool) -> int:
    """The number of classifiers that evaluate a stage; a released model is tested once itself."""
    if is_model:
        return 1
    return job.evaluation.repetitions * len(job.evaluation.classifiers(dataset_info(job.scenario)))


def released_so_far(job: Job, stage: int) -> SyntheticSet | ReleasedModel:
    """All releases up to a stage as one set, or the last released model."""
    run = RunDirectory(Path(job.out))
    outcome = run.releases.load(job.name, stage + 1)
    if isinstance(outcome, ReleasedModel):
        return outcome
    sets = [run.releases.load(job.name, earlier + 1) for earlier in range(stage)]
    return SyntheticSet.join([*(s for s in sets if isinstance(s, SyntheticSet)), outcome])


def releases_for_workers(
    engine: Engine, job: Job, stage: int
) -> tuple[SyntheticSet | ReleasedModel, ...]:
    """The releases up to a stage, as an argument for workers that do not see the run directory;
    nothing where all see it."""
    return () if engine.one_disk else (released_so_far(job, stage),)


def evaluate_classifier(
    job_text: str, stage: int, number: int, released: SyntheticSet | ReleasedModel | None = None
) -> EvalResult:
    """Train a new classifier on all releases up to a stage and test it.

    The test data are those of all classes seen. A released model is tested instead, as it is.

    Args:
        job_text: The job.
        stage: The index of the stage.
        number: Numbers the repetitions of the first kind of classifier, then those of the second,
            and so on.
        released: All releases up to the stage; None: they are read from the run directory.
    """
    job = Job.parse(job_text)
    this_stage = scenario_stages(job.scenario)[stage]
    images, labels = _tested(job, this_stage)
    released = released or released_so_far(job, stage)
    if isinstance(released, ReleasedModel):
        return score_model(
            released, images, labels, info=this_stage.data, device=str(job.torch_device)
        )
    config, info = job.evaluation, this_stage.data
    kind, repetition = divmod(number, config.repetitions)
    task = EvaluationTask(
        config.classifiers(info)[kind],
        released,
        images,
        labels,
        this_stage.seen,
        info,
        config,
        key=(job.seed, "evaluation", job.method, stage, repetition),
        device=str(job.torch_device),
    )
    start, curves = time.time(), Curves()
    result = train_and_test(task, curves)
    send_event(
        job.progress_folder(),
        EVALUATION,
        start,
        job=job.name,
        stage=stage + 1,
        classifier=task.classifier,
        repetition=repetition,
        accuracy=result.accuracy,
        losses=curves.losses,
        accuracies=curves.accuracies,
    )
    if not config.rules.calibrated:
        return result
    key = ("anchor", task.classifier)
    baseline = replace(task, train=real_records(job, this_stage), key=key)
    folder = data_directory(job.scenario.data_dir) / "anchors"
    return replace(result, real_data_accuracy=real_data_baseline(folder, baseline).accuracy)


def evaluate_on_real(job_text: str, stage: int, records: int, number: int) -> EvalResult:
    """Train a new classifier on some of the parties' raw records and test it: a reference that is
    not private, which tells what a release is worth.

    Args:
        job_text: A job, which names the scenario, the evaluation and the seed.
        stage: The index of the stage.
        records: The number of records to train on, balanced over classes as far as there are any.
        number: Numbers classifiers and repetitions as in `evaluate_classifier`.
    """
    job = Job.parse(job_text)
    this_stage = scenario_stages(job.scenario)[stage]
    images, labels = _tested(job, this_stage)
    config, info = job.evaluation, this_stage.data
    kind, repetition = divmod(number, config.repetitions)
    chosen = subsample(
        real_records(job, this_stage), records, (job.seed, "real records", stage, records)
    )
    return train_and_test(
        EvaluationTask(
            config.classifiers(info)[kind],
            chosen,
            images,
            labels,
            this_stage.seen,
            info,
            config,
            key=(job.seed, "evaluation on real records", stage, records, repetition),
            device=str(job.torch_device),
        )
    )


def _tested(job: Job, this_stage: Stage) -> tuple[torch.Tensor, torch.Tensor]:
    """The test images and labels of the classes seen."""
    test = test_records(job.scenario)
    among = torch.isin(test.labels, torch.tensor(this_stage.seen))
    return test.images[among], test.labels[among]


def real_records(job: Job, this_stage: Stage) -> SyntheticSet:
    """The raw records of all parties of the classes seen: the reference of an evaluation.

    Their order does not depend on the partition. Nothing computed from them is ever released."""
    numbers = sorted(
        {info.party for each in scenario_stages(job.scenario) for info in each.parties}
    )
    parties = [party_records(job.scenario, party) for party in numbers]
    images, labels = (
        torch.cat([getattr(p, part) for p in parties]) for part in ("images", "labels")
    )
    among = torch.isin(labels, torch.tensor(this_stage.seen))
    images, labels = images[among], labels[among]
    content = [(row.tobytes(), int(n)) for row, n in zip(images.numpy(), labels, strict=True)]
    order = torch.tensor(sorted(range(len(content)), key=content.__getitem__), dtype=torch.long)
    return SyntheticSet(images[order], labels[order])


def evaluate_images(
    job_text: str, stage: int, released: SyntheticSet | ReleasedModel | None = None
) -> ImageQuality:
    """Compare the images released up to a stage with the parties' real records; see
    `evaluate_classifier`."""
    job = Job.parse(job_text)
    this_stage = scenario_stages(job.scenario)[stage]
    released = released or released_so_far(job, stage)
    if isinstance(released, ReleasedModel):
        raise ValueError("a released model holds no images")
    test = test_records(job.scenario)
    return measure_image_quality(
        released,
        real_records(job, replace(this_stage, seen=tuple(range(this_stage.data.classes)))),
        SyntheticSet(test.images, test.labels),
        this_stage.seen,
        info=this_stage.data,
        config=job.evaluation,
        key=(job.seed, "quality", job.method, stage),
        folder=data_directory(job.scenario.data_dir) / "scorers",
        device=job.torch_device,
    )
