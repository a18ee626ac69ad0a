"""Continual metrics against first principles."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.evaluation.continual import (
    accuracy_matrix,
    forgetting,
    stage_rows,
    summary_rows,
)
from fedsynth.evaluation.material import EvalResult


def result(per_class: dict[int, tuple[int, int]]) -> EvalResult:
    return EvalResult(per_class, "P", "convnet", 8, 1.0, 1, 10)


@st.composite
def courses(draw: st.DrawFn) -> tuple[list[list[EvalResult]], list[list[int]]]:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    names = draw(st.permutations(range(sum(sizes))))
    stages, at = [], 0
    for size in sizes:
        stages.append(list(names[at : at + size]))
        at += size
    tested = {name: draw(st.integers(1, 50)) for name in names}
    nets = draw(st.integers(1, 3))
    history = []
    for stage in range(len(stages)):
        seen = [name for classes in stages[: stage + 1] for name in classes]
        history.append(
            [
                result({c: (draw(st.integers(0, tested[c])), tested[c]) for c in seen})
                for _ in range(nets)
            ]
        )
    return history, stages


@settings(max_examples=40, deadline=None)
@given(courses())
def test_against_counting(course: tuple[list[list[EvalResult]], list[list[int]]]) -> None:
    history, stages = course
    matrix = accuracy_matrix(history, stages)
    for s, results in enumerate(history):
        assert len(matrix[s]) == s + 1
        rows = stage_rows(results, stages)
        pooled = [
            sum(c for c, _ in r.per_class.values()) / sum(n for _, n in r.per_class.values())
            for r in results
        ]
        assert rows["accuracy"] == pytest.approx(sum(pooled) / len(pooled))
        assert [rows[f"accuracy_net_{i}"] for i in range(len(pooled))] == pytest.approx(pooled)
        assert ("accuracy_std" in rows) == (len(pooled) > 1)
        for j, classes in enumerate(stages[: s + 1]):
            total = 0.0
            for r in results:
                correct = sum(r.per_class[c][0] for c in classes)
                total += correct / sum(r.per_class[c][1] for c in classes)
            assert rows[f"accuracy_of_stage_{j + 1}"] == pytest.approx(total / len(results))
            assert matrix[s][j] == pytest.approx(total / len(results))
        assert f"accuracy_of_stage_{s + 2}" not in rows
        # pooled accuracy is the mean of the stages' accuracies weighted by their test images
        weights = [sum(results[0].per_class[c][1] for c in classes) for classes in stages[: s + 1]]
        weighted = sum(w * a for w, a in zip(weights, matrix[s], strict=True)) / sum(weights)
        assert rows["accuracy"] == pytest.approx(weighted)


@settings(max_examples=40, deadline=None)
@given(courses())
def test_summary(course: tuple[list[list[EvalResult]], list[list[int]]]) -> None:
    history, stages = course
    rows = summary_rows(history, stages)
    each = [stage_rows(results, stages)["accuracy"] for results in history]
    assert rows["average_accuracy"] == pytest.approx(sum(each) / len(each))
    assert ("forgetting" in rows) == (len(history) > 1)
    if len(history) > 1:
        matrix = accuracy_matrix(history, stages)
        lost = []
        for j in range(len(stages) - 1):
            best = max(matrix[s][j] for s in range(j, len(stages) - 1))
            lost.append(best - matrix[-1][j])
        assert rows["forgetting"] == pytest.approx(sum(lost) / len(lost))
        assert -1 <= rows["forgetting"] <= 1


def test_a_relay_that_forgets_everything_and_one_that_keeps_everything() -> None:
    forgets = [[1.0], [0.0, 1.0], [0.0, 0.0, 1.0]]
    keeps = [[0.9], [0.9, 0.8], [0.9, 0.8, 0.7]]
    assert forgetting(forgets) == 1
    assert forgetting(keeps) == 0
    assert forgetting([[0.5], [0.75, 1.0]]) == -0.25  # a later stage helped
    assert forgetting([[1.0]]) is None


def test_spread_is_over_nets() -> None:
    nets = [result({0: (8, 10)}), result({0: (6, 10)})]
    assert stage_rows(nets, [[0]])["accuracy_std"] == pytest.approx(2**0.5 / 10)
