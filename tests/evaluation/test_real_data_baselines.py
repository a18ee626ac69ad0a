"""Baselines on real data are cached, and computed anew for everything they depend on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation import real_data_baselines
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.real_data_baselines import real_data_baseline
from fedsynth.evaluation.train_classifier import EvaluationTask, train_and_test

INFO = DatasetInfo("file:my data/x.npz", (1, 4, 4), 3, (0.2,), (0.4,))
IMAGES = torch.rand(30, 1, 4, 4, generator=torch_generator("anchors"))
LABELS = torch.arange(30) % 3
TASK = EvaluationTask(
    "gaussian_nb",
    SyntheticSet(IMAGES, LABELS),
    IMAGES[:12],
    LABELS[:12],
    (0, 1, 2),
    INFO,
    EvaluationConfig("G"),
    ("anchor",),
)


def trainings(folder: Path, *tasks: EvaluationTask) -> int:
    """Number of trainings for these baselines."""
    with mock.patch.object(real_data_baselines, "train_and_test", wraps=train_and_test) as train:
        for task in tasks:
            real_data_baseline(folder, task)
    return train.call_count


def test_computed_once_and_the_same_from_disk(tmp_path: Path) -> None:
    first = real_data_baseline(tmp_path / "new", TASK)
    assert trainings(tmp_path / "new", TASK, TASK) == 0
    assert real_data_baseline(tmp_path / "new", TASK) == first
    assert first == train_and_test(TASK)


@pytest.mark.parametrize(
    "changed",
    [
        replace(TASK, classifier="bernoulli_nb"),
        replace(TASK, train=SyntheticSet(IMAGES.flip(0), LABELS)),
        replace(TASK, train=SyntheticSet(IMAGES, LABELS.flip(0))),
        replace(TASK, test_images=IMAGES[1:13]),
        replace(TASK, test_labels=LABELS[1:13]),
        replace(TASK, classes=(2, 1, 0)),
        replace(TASK, info=replace(INFO, name="other")),
        replace(TASK, config=EvaluationConfig("G", suite_images=9)),
        replace(TASK, key=("another",)),
    ],
    ids=lambda task: task.classifier,
)
def test_every_dependency_gives_another_baseline(tmp_path: Path, changed: EvaluationTask) -> None:
    real_data_baseline(tmp_path, TASK)
    assert trainings(tmp_path, changed) == 1
    assert trainings(tmp_path, TASK, changed) == 0


def test_a_new_package_version_gives_another_baseline(tmp_path: Path) -> None:
    real_data_baseline(tmp_path, TASK)
    with mock.patch.object(real_data_baselines, "package_version", return_value="99.0"):
        assert trainings(tmp_path, TASK) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"accuracy": 1}', b"\xff"])
def test_a_damaged_file_is_computed_anew(tmp_path: Path, content: bytes) -> None:
    first = real_data_baseline(tmp_path, TASK)
    (path,) = tmp_path.glob("*.json")
    path.write_bytes(content)
    assert trainings(tmp_path, TASK) == 1
    assert real_data_baseline(tmp_path, TASK) == first
    assert trainings(tmp_path, TASK) == 0


def test_an_unwritable_cache_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert real_data_baseline(tmp_path / "file" / "anchors", TASK) == real_data_baseline(
        tmp_path / "fine", TASK
    )


def test_the_file_holds_counts_and_no_record(tmp_path: Path) -> None:
    real_data_baseline(tmp_path, TASK)
    (path,) = tmp_path.glob("*.json")
    assert len(path.read_bytes()) < 1000
    assert path.name.startswith("file_my_data_x_npz-gaussian_nb-")
