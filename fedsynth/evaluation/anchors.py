"""What classifiers reach on real data: computed once a data set, kept on disk, for calibration.

An anchor is trained on the parties' raw records, which no receiver could do. It serves to read the
accuracies of an evaluation and is never released; the file holds counts of correct answers on test
data and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from filelock import FileLock

from fedsynth.evaluation import suite
from fedsynth.evaluation.downstream import train_and_test
from fedsynth.evaluation.material import EvalResult, Exam, read_verdict
from fedsynth.report.files import atomic_write

log = logging.getLogger(__name__)

FORM = 1  # raise it when what an anchor means changes


def anchor(folder: Path, exam: Exam) -> EvalResult:
    """The result of an exam on real data, from `folder` or computed and put there.

    Whoever needs the same one meanwhile waits; a folder that cannot be written costs the
    computation each time and nothing else.
    """
    path = folder / f"{_file_name(exam)}.json"
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(f"{path}.lock"))
        except OSError as error:
            log.warning("anchors are not kept: %s", error)
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            return read_verdict(path.read_text())
        result = train_and_test(
            exam.train,
            exam.test_images,
            exam.test_labels,
            exam.order,
            facts=exam.facts,
            setting=exam.setting,
            key=exam.key,
            name=exam.name,
        )
        with contextlib.suppress(OSError):
            atomic_write(path, json.dumps(asdict(result)).encode(), durable=False)
    return result


def _file_name(exam: Exam) -> str:
    """Readable, and different for everything an anchor depends on: data, classes, rules, programs,
    randomness."""
    sha = hashlib.sha256()
    for tensor in (exam.train.images, exam.train.labels, exam.test_images, exam.test_labels):
        sha.update(repr((str(tensor.dtype), tuple(tensor.shape))).encode())
        sha.update(tensor.contiguous().numpy().tobytes())
    setting, package = exam.setting, suite.PACKAGES.get(exam.name, "torch")
    rules = (setting.rules, setting.epochs, setting.max_images, setting.width, setting.dtype)
    program = (FORM, package, metadata.version(package))
    sha.update(repr((exam.name, tuple(exam.order), exam.facts, exam.key, rules, program)).encode())
    readable = "".join(c if c.isalnum() else "_" for c in exam.facts.name)[-40:]
    return f"{readable}-{exam.name}-{sha.hexdigest()[:20]}"
