"""Evaluation of released sets by another protocol or other classifiers, at any later time.

Nothing is released again: classifiers are trained on what a run released, or on a released file, so
no noise is drawn and no budget is spent. Results of a run's re-evaluation lie in a folder of their
own below it, each classifier in a file, so an interrupted one continues where it was.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import ReleasedModel
from fedsynth.core.settings import plain
from fedsynth.engine.base import Engine
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.continual import stage_rows
from fedsynth.evaluation.image_quality import ImageQuality
from fedsynth.evaluation.train_classifier import EvaluationTask, train_and_test
from fedsynth.evaluation.types import EvalResult
from fedsynth.experiment.evaluate import (
    evaluate_classifier,
    evaluate_images,
    number_of_classifiers,
    releases_for_workers,
)
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.job import Job
from fedsynth.experiment.job_metrics import keyed
from fedsynth.experiment.scenario import test_records
from fedsynth.experiment.scenario_config import ScenarioConfig, dataset_info
from fedsynth.storage.files import write_file
from fedsynth.storage.metrics import MetricsFile
from fedsynth.storage.releases import unarchive
from fedsynth.storage.run_directory import METRICS, RunDirectory

EVALUATIONS = "evaluations"  # folder of a run's re-evaluations
SETTINGS = "evaluation.yaml"


@dataclass(frozen=True)
class Reevaluation:
    """An evaluation of a run's releases that differs from the one it was started with.

    Attributes:
        run: The run; it may be unfinished.
        experiment: Its jobs, with the other evaluation.
        last_stage_only: Evaluate the last released stage of each job, not all of them.
    """

    run: RunDirectory
    experiment: Experiment
    last_stage_only: bool = True

    @property
    def folder(self) -> Path:
        """The folder of the results, named after the protocol and all other settings."""
        evaluation = self.experiment.config.evaluation
        text = json.dumps([dataclasses.asdict(evaluation), self.last_stage_only], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        names = evaluation.classifier or ("default",)
        stem = f"{evaluation.protocol}-{names[0] if len(names) == 1 else f'{len(names)}'}-{digest}"
        return self.run.path / EVALUATIONS / stem

    def stages(self, job: Job) -> list[int]:
        """The released stages of a job that are evaluated."""
        released = []
        for stage in range(len(job.plans)):
            if not self.run.releases.exists(job.name, stage + 1):
                break
            released.append(stage)
        return released[-1:] if self.last_stage_only else released

    def execute(self, engine: Engine) -> Path:
        """Train and test all classifiers that are not on disk already.

        Args:
            engine: An open engine; its workers train the classifiers.

        Returns:
            The metrics file of the results.

        Raises:
            UserError: The run holds no release that can be evaluated.
        """
        evaluation = self.experiment.config.evaluation
        pending: dict[tuple[Job, int], list[Future[EvalResult]]] = {}
        qualities: dict[tuple[Job, int], Future[ImageQuality]] = {}
        for job in self.experiment.jobs:
            for stage in self.stages(job):
                is_model = self.run.releases.is_model(job.name, stage + 1)
                pending[job, stage] = [
                    self._result(engine, job, stage, number)
                    for number in range(number_of_classifiers(job, is_model))
                ]
                if evaluation.quality and not is_model:
                    qualities[job, stage] = engine.submit(
                        evaluate_images,
                        job.text(),
                        stage,
                        *releases_for_workers(engine, job, stage),
                    )
        if not pending:
            raise UserError(
                f"{self.run.path} holds no release to evaluate. Raw records of references that "
                "are not private are removed when a run ends."
            )
        write_file(
            self.folder / SETTINGS,
            yaml.safe_dump(plain(dataclasses.asdict(evaluation)), sort_keys=False).encode(),
        )
        metrics = MetricsFile(self.folder / METRICS)
        for (job, stage), futures in pending.items():
            results = [future.result() for future in futures]
            for number, result in enumerate(results):
                if not (file := self._file(job, stage, number)).is_file():
                    write_file(file, result.to_json().encode())
            classes = [plan.stage.classes for plan in job.plans]
            rows: Mapping[str, float] = {
                **stage_rows(results, classes),
                "images_used": results[0].images,
            }
            if (job, stage) in qualities:
                rows = {**rows, **qualities[job, stage].result().rows()}
            metrics.add(keyed(job, stage, rows))
        metrics.compact()
        return metrics.path

    def _result(self, engine: Engine, job: Job, stage: int, number: int) -> Future[EvalResult]:
        def start() -> Future[EvalResult]:
            released = releases_for_workers(engine, job, stage)
            return engine.submit(evaluate_classifier, job.text(), stage, number, *released)

        return stored_or_started(self._file(job, stage, number), start)

    def _file(self, job: Job, stage: int, number: int) -> Path:
        return self.folder / job.name / f"evaluation-{stage + 1}-{number}.json"


def stored_or_started(file: Path, start: Callable[[], Future[EvalResult]]) -> Future[EvalResult]:
    """The result in a file, or that of a computation, which is written there when it is done."""
    if file.is_file():
        done: Future[EvalResult] = Future()
        done.set_result(EvalResult.from_json(file.read_text(encoding="utf-8")))
        return done
    future = start()
    future.add_done_callback(functools.partial(_save, file))
    return future


def _save(file: Path, future: Future[EvalResult]) -> None:
    """Keep a result as soon as it is there."""
    if not future.cancelled() and future.exception() is None:
        write_file(file, future.result().to_json().encode())


def evaluate_file(
    path: Path, scenario: ScenarioConfig, evaluation: EvaluationConfig, seed: int = 0
) -> list[EvalResult]:
    """Evaluate a released file without the run that made it.

    Args:
        path: The `.npz` file of a synthetic set.
        scenario: The data set whose test records are the measure, with its image transform.
        evaluation: Protocol and classifiers.
        seed: The public seed of the classifiers.

    Returns:
        One result per classifier and repetition.

    Raises:
        UserError: The file is no synthetic set, or does not fit the data set.
    """
    released = unarchive(path)
    if isinstance(released, ReleasedModel):
        raise UserError(f"{path} holds a model: only synthetic sets can be evaluated anew.")
    info = dataset_info(scenario)
    if tuple(released.images.shape[1:]) != tuple(info.shape):
        raise UserError(
            f"{path} holds images of shape {tuple(released.images.shape[1:])}, and "
            f"data={scenario.data} has {tuple(info.shape)}."
        )
    evaluation.check(info)
    classes = tuple(int(label) for label in released.labels.unique())
    test = test_records(scenario)
    among = torch.isin(test.labels, torch.tensor(classes))
    return [
        train_and_test(
            EvaluationTask(
                name,
                released,
                test.images[among],
                test.labels[among],
                classes,
                info,
                evaluation,
                key=(seed, "evaluation of a file", name, repetition),
            )
        )
        for name in evaluation.classifiers(info)
        for repetition in range(evaluation.repetitions)
    ]
