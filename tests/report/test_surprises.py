"""Surprising results are said, and ordinary ones are not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from report_pages import report_data

from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.experiment.evaluation_data import HOLD_OUT
from fedsynth.report.estimates import Estimate, FinalResult
from fedsynth.report.summary import frame
from fedsynth.report.surprises import MAX_LINES, guessing_accuracy, surprises
from fedsynth.storage.metrics import Metric

INFO = DatasetInfo("x", (1, 8, 8), 4, (0.0,), (1.0,), class_names=("cat", "dog", "cow", "hen"))
DATA = replace(report_data(), info=INFO)


def result(epsilon: float, values: list[float], method: str = "ldpdc") -> FinalResult:
    return FinalResult(method, epsilon, Estimate.of(values), 10)


def test_a_smaller_budget_that_does_better_is_said_with_its_intervals() -> None:
    (line,) = surprises([result(1, [0.8]), result(10, [0.7])], frame([]), DATA)
    assert line == (
        "ldpdc is better at ε = 1 (80.0%) than at ε = 10 (70.0%), although that takes less noise. "
        "With one seed, chance is not excluded."
    )
    clear = [result(1, [0.8, 0.801, 0.802]), result(10, [0.7, 0.701, 0.702])]
    assert "intervals do not overlap" in surprises(clear, frame([]), DATA)[0]
    unclear = [result(1, [0.9, 0.7]), result(10, [0.6, 0.8])]
    assert "intervals overlap" in surprises(unclear, frame([]), DATA)[0]


def test_what_is_expected_is_not_said() -> None:
    ordinary = [result(1, [0.7]), result(10, [0.8]), result(math.inf, [0.9], "upper_bound")]
    assert surprises(ordinary, frame([]), DATA) == []
    assert surprises([result(1, [0.704]), result(10, [0.7])], frame([]), DATA) == []
    two_methods = [result(1, [0.9], "psg"), result(10, [0.7], "ldpdc")]
    assert surprises(two_methods, frame([]), DATA) == []
    assert surprises([], frame([]), DATA) == []


def test_guessing_is_the_share_of_the_most_frequent_class() -> None:
    parties = (PartyInfo(0, 90, {0: 60, 1: 30}), PartyInfo(1, 10, {1: 10}))
    assert guessing_accuracy(replace(DATA, parties=parties)) == pytest.approx(0.6)
    assert guessing_accuracy(DATA) == 0.25
    assert guessing_accuracy(replace(DATA, info=None)) is None
    (line,) = surprises([result(1, [0.26])], frame([]), DATA)
    assert "guessing the most frequent class, which is right on 25.0%" in line
    assert surprises([result(1, [0.28])], frame([]), DATA) == []


def test_a_private_method_above_the_upper_bound_is_said() -> None:
    found = surprises([result(1, [0.9]), result(math.inf, [0.8], "upper_bound")], frame([]), DATA)
    assert found == [
        "ldpdc at ε = 1 reaches 90.0%, more than upper_bound, which trains on the raw records "
        "(80.0%)."
    ]


def test_classes_that_are_never_found_have_their_names() -> None:
    rows = [
        Metric("ldpdc", 1.0, seed, stage, f"accuracy_of_class_{c}", value * (stage == 2))
        for seed in (0, 1)
        for stage in (1, 2)
        for c, value in enumerate((0.5, 0.0, 0.0, 0.1 * seed))
    ]
    (line,) = surprises([], frame(rows), DATA)
    assert line == "ldpdc at ε = 1 gets no test record right of the classes dog, cow."
    (held,) = surprises([], frame(rows), replace(DATA, tested=HOLD_OUT))
    assert held == "ldpdc at ε = 1 gets no held-out record right of the classes dog, cow."
    many = [Metric(f"m{i}", 1.0, 0, 1, "accuracy_of_class_0", 0.0) for i in range(MAX_LINES + 3)]
    lines = surprises([], frame(many), replace(DATA, info=None))
    assert lines[-1] == "And 3 more of these kinds."
    assert "of the class 0." in lines[0]
