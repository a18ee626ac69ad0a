"""Confusions are the shares of stored predictions; the figure shows them with class names."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedsynth.evaluation.types import EvalResult
from fedsynth.report.confusions import (
    MAX_CLASSES,
    confusion_figure,
    confusions,
    frequent_mistakes,
)
from fedsynth.report.summary import frame
from fedsynth.storage.metrics import Metric
from fedsynth.storage.releases import release_name
from fedsynth.storage.run_directory import RunDirectory, evaluation_file

NAMES = {0: "cat", 1: "dog", 2: "a_very_long_$name"}


def put_result(
    run: RunDirectory,
    seed: int,
    number: int,
    correct: dict[int, tuple[int, int]],
    mistakes: dict[int, dict[int, int]] | None,
    *,
    stage: int = 2,
) -> None:
    """A stored result of a classifier, with its accuracy."""
    result = EvalResult(correct, "P", "mlp", 1, 1.0, 1, 1, mistakes=mistakes)
    job = release_name("psg", 1.0, seed)
    run.write_text(evaluation_file(job, stage, number), result.to_json())
    run.add_metrics([Metric("psg", 1.0, seed, stage, "accuracy", result.accuracy)])


def test_shares_are_over_seeds_and_classifiers_of_the_last_stage(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    put_result(run, 0, 0, {0: (1, 2), 1: (4, 4)}, {0: {1: 1}})
    put_result(run, 0, 1, {0: (2, 2), 1: (4, 4)}, {})
    put_result(run, 1, 0, {0: (0, 2), 1: (4, 4)}, {0: {1: 1, 2: 1}})
    put_result(run, 0, 0, {0: (0, 2)}, {0: {1: 2}}, stage=1)
    ((key, table),) = confusions(run, frame(run.metrics())).items()
    assert key == (1.0, "psg")
    assert table.to_numpy() == pytest.approx(np.array([[3, 2, 1], [0, 6, 0]]) / 6)
    assert frequent_mistakes(table, 5) == [
        (0, 1, pytest.approx(1 / 3)),
        (0, 2, pytest.approx(1 / 6)),
    ]
    assert frequent_mistakes(table, 1) == [(0, 1, pytest.approx(1 / 3))]


def test_results_of_earlier_versions_have_none(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    put_result(run, 0, 0, {0: (1, 2)}, None)
    assert confusions(run, frame(run.metrics())) == {}
    assert confusion_figure({}, NAMES) is None


def test_the_figure_names_the_classes() -> None:
    table = pd.DataFrame([[0.9, 0.1, 0.0], [0.25, 0.5, 0.25]], index=[0, 1], columns=[0, 1, 2])
    figure = confusion_figure({(1.0, "dp_sgd"): table, (math.inf, "upper"): table}, NAMES)
    assert figure is not None
    first, second = figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["cat", "dog"]
    assert [label.get_text() for label in first.get_xticklabels()] == ["cat", "dog", "a_very_long…"]
    assert [panel.get_title() for panel in (first, second)] == ["dp_sgd, ε = 1", "upper, ε = ∞"]
    assert [text.get_text() for text in first.texts] == [
        "0.90",
        "0.10",
        "0.00",
        "0.25",
        "0.50",
        "0.25",
    ]
    narrow = confusion_figure({(1.0, "a"): table, (2.0, "a"): table}, NAMES, narrow=True)
    assert narrow is not None
    assert narrow.get_figwidth() < figure.get_figwidth()
    classes = range(MAX_CLASSES + 1)
    many = pd.DataFrame(np.eye(len(classes)), index=classes, columns=classes)
    assert confusion_figure({(1.0, "a"): many}, {}) is None
