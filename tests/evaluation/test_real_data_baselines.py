"""Anchors: computed once, kept on disk, computed anew for anything that could change them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation import real_data_baselines as anchors
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.real_data_baselines import anchor
from fedsynth.evaluation.train_classifier import train_and_test
from fedsynth.evaluation.types import EvaluationTask

FACTS = DatasetInfo("file:my data/x.npz", (1, 4, 4), 3, (0.2,), (0.4,))
IMAGES = torch.rand(30, 1, 4, 4, generator=torch_generator("anchors"))
LABELS = torch.arange(30) % 3
EXAM = EvaluationTask(
    "gaussian_nb",
    SyntheticSet(IMAGES, LABELS),
    IMAGES[:12],
    LABELS[:12],
    (0, 1, 2),
    FACTS,
    EvaluationConfig("G"),
    ("anchor",),
)


def trainings(folder: Path, *exams: EvaluationTask) -> int:
    """How often something is trained when these anchors are asked for."""
    with mock.patch.object(anchors, "train_and_test", wraps=train_and_test) as train:
        for exam in exams:
            anchor(folder, exam)
    return train.call_count


def test_computed_once_and_the_same_from_disk(tmp_path: Path) -> None:
    first = anchor(tmp_path / "new", EXAM)
    assert trainings(tmp_path / "new", EXAM, EXAM) == 0
    assert anchor(tmp_path / "new", EXAM) == first
    plain = train_and_test(
        EXAM.train,
        EXAM.test_images,
        EXAM.test_labels,
        EXAM.order,
        info=FACTS,
        setting=EXAM.setting,
        key=EXAM.key,
        name=EXAM.name,
    )
    assert first == plain


@pytest.mark.parametrize(
    "changed",
    [
        replace(EXAM, name="bernoulli_nb"),
        replace(EXAM, train=SyntheticSet(IMAGES.flip(0), LABELS)),
        replace(EXAM, train=SyntheticSet(IMAGES, LABELS.flip(0))),
        replace(EXAM, test_images=IMAGES[1:13]),
        replace(EXAM, test_labels=LABELS[1:13]),
        replace(EXAM, order=(2, 1, 0)),
        replace(EXAM, info=replace(FACTS, name="other")),
        replace(EXAM, setting=EvaluationConfig("G", suite_images=9)),
        replace(EXAM, key=("another",)),
    ],
    ids=lambda exam: exam.name,
)
def test_whatever_could_change_it_is_another_anchor(
    tmp_path: Path, changed: EvaluationTask
) -> None:
    anchor(tmp_path, EXAM)
    assert trainings(tmp_path, changed) == 1
    assert trainings(tmp_path, EXAM, changed) == 0


def test_a_new_program_is_another_anchor(tmp_path: Path) -> None:
    anchor(tmp_path, EXAM)
    with mock.patch.object(anchors.metadata, "version", return_value="99.0"):
        assert trainings(tmp_path, EXAM) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"accuracy": 1}', b"\xff"])
def test_a_damaged_file_is_computed_anew(tmp_path: Path, content: bytes) -> None:
    first = anchor(tmp_path, EXAM)
    (path,) = tmp_path.glob("*.json")
    path.write_bytes(content)
    assert trainings(tmp_path, EXAM) == 1
    assert anchor(tmp_path, EXAM) == first
    assert trainings(tmp_path, EXAM) == 0


def test_a_place_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert anchor(tmp_path / "file" / "anchors", EXAM) == anchor(tmp_path / "fine", EXAM)


def test_the_file_holds_counts_and_no_record(tmp_path: Path) -> None:
    anchor(tmp_path, EXAM)
    (path,) = tmp_path.glob("*.json")
    assert len(path.read_bytes()) < 1000
    assert path.name.startswith("file_my_data_x_npz-gaussian_nb-")
