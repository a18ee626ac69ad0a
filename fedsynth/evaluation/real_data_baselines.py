"""Results of classifiers on real data, for calibration; computed once and cached on disk.

A baseline is trained on the raw records of the parties, which no receiver of releases has. It puts
the accuracies of an evaluation into proportion and is never released; the file holds counts of
correct predictions on test data and nothing else.
"""

from __future__ import annotations

from pathlib import Path

import torch

from fedsynth.evaluation.classical_classifiers import FORMS, PACKAGES
from fedsynth.evaluation.train_classifier import EvaluationTask, train_and_test
from fedsynth.evaluation.types import EvalResult
from fedsynth.storage.disk_cache import file_stem, get_or_compute
from fedsynth.storage.environment import package_version

FORM = 1  # raise it when what a baseline means changes


def real_data_baseline(folder: Path, task: EvaluationTask) -> EvalResult:
    """The result of a task whose training set is real data, from the cache in `folder` if there."""
    return get_or_compute(
        folder / f"{_file_stem(task)}.json",
        lambda: train_and_test(task),
        read=lambda data: EvalResult.from_json(data.decode()),
        write=lambda result: result.to_json().encode(),
        damage=(ValueError, TypeError, KeyError, AttributeError),
    )


def _file_stem(task: EvaluationTask) -> str:
    """A name that depends on data, classes, rules, program versions and randomness."""
    config, package = task.config, PACKAGES.get(task.classifier, "torch")
    rules = (config.rules, config.epochs, config.max_images, config.width, config.dtype)
    form = (FORM, *([FORMS[task.classifier]] if task.classifier in FORMS else []))
    program = (*form, package, package_version(package))
    tensors = (task.train.images, task.train.labels, task.test_images, task.test_labels)
    dependencies: tuple[object, ...] = (
        task.classifier,
        tuple(task.classes),
        task.info,
        task.key,
        rules,
        program,
    )
    if torch.device(task.device).type != "cpu":
        dependencies = (*dependencies, torch.device(task.device).type)
    return file_stem(f"{task.info.name}-{task.classifier}", tensors, *dependencies)
