"""What classifiers reach on real data: computed once a data set, kept on disk, for calibration.

An anchor is trained on the parties' raw records, which no receiver could do. It serves to read the
accuracies of an evaluation and is never released; the file holds counts of correct answers on test
data and nothing else.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from fedsynth.evaluation import classical_classifiers as suite
from fedsynth.evaluation.train_classifier import train_and_test
from fedsynth.evaluation.types import EvalResult, EvaluationTask, read_verdict
from fedsynth.storage.disk_cache import file_stem, get_or_compute

FORM = 1  # raise it when what an anchor means changes


def anchor(folder: Path, exam: EvaluationTask) -> EvalResult:
    """The result of an exam on real data, from `folder` or computed and put there."""

    def compute() -> EvalResult:
        return train_and_test(
            exam.train,
            exam.test_images,
            exam.test_labels,
            exam.order,
            info=exam.info,
            setting=exam.setting,
            key=exam.key,
            name=exam.name,
        )

    return get_or_compute(
        folder / f"{_file_stem(exam)}.json",
        compute,
        read=lambda data: read_verdict(data.decode()),
        write=lambda result: json.dumps(asdict(result)).encode(),
        damage=(ValueError, TypeError, KeyError, AttributeError),
    )


def _file_stem(exam: EvaluationTask) -> str:
    """Different for everything an anchor depends on: data, classes, rules, programs, randomness."""
    setting, package = exam.setting, suite.PACKAGES.get(exam.name, "torch")
    rules = (setting.rules, setting.epochs, setting.max_images, setting.width, setting.dtype)
    program = (FORM, package, metadata.version(package))
    tensors = (exam.train.images, exam.train.labels, exam.test_images, exam.test_labels)
    info = (exam.name, tuple(exam.order), exam.info, exam.key, rules, program)
    return file_stem(f"{exam.info.name}-{exam.name}", tensors, *info)
