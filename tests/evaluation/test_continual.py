"""Continual metrics against first principles."""

from __future__ import annotations

from dataclasses import replace
from statistics import stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.evaluation.continual import accuracy_matrix, forgetting, stage_rows, summary_rows
from fedsynth.evaluation.types import EvalResult


def result(per_class: dict[int, tuple[int, int]], name: str = "convnet") -> EvalResult:
    return EvalResult(per_class, "P", name, 8, 1.0, 1, 10)


def one_kind(name: str, right: int, **more: object) -> EvalResult:
    """The result of one kind of classifier with `right` of 100 correct."""
    return replace(result({0: (right, 100)}, name), protocol="G", **more)  # type: ignore[arg-type]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[EvalResult]], list[list[int]]]:
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
@given(histories())
def test_against_counting(
    history_and_stages: tuple[list[list[EvalResult]], list[list[int]]],
) -> None:
    history, stages = history_and_stages
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
        for c, (_, tested) in results[0].per_class.items():
            correct = sum(r.per_class[c][0] for r in results)
            expected = correct / tested / len(results)
            assert rows[f"accuracy_of_class_{c}"] == pytest.approx(expected)
        # pooled accuracy is the mean of the stages' accuracies weighted by their test images
        weights = [sum(results[0].per_class[c][1] for c in classes) for classes in stages[: s + 1]]
        weighted = sum(w * a for w, a in zip(weights, matrix[s], strict=True)) / sum(weights)
        assert rows["accuracy"] == pytest.approx(weighted)


@settings(max_examples=40, deadline=None)
@given(histories())
def test_summary(history_and_stages: tuple[list[list[EvalResult]], list[list[int]]]) -> None:
    history, stages = history_and_stages
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


def test_forgetting_everything_and_nothing() -> None:
    forgets = [[1.0], [0.0, 1.0], [0.0, 0.0, 1.0]]
    keeps = [[0.9], [0.9, 0.8], [0.9, 0.8, 0.7]]
    assert forgetting(forgets) == 1
    assert forgetting(keeps) == 0
    assert forgetting([[0.5], [0.75, 1.0]]) == -0.25  # a later stage helped
    assert forgetting([[1.0]]) is None


def test_the_deviation_is_over_repetitions() -> None:
    nets = [result({0: (8, 10)}), result({0: (6, 10)})]
    assert stage_rows(nets, [[0]])["accuracy_std"] == pytest.approx(2**0.5 / 10)


def test_kinds_of_classifiers_have_metrics_of_their_own_and_equal_weight() -> None:
    rows = stage_rows(
        [one_kind("lda", 60), one_kind("lda", 80), one_kind("gbm", 10), one_kind("gbm", 20)], [[0]]
    )
    assert rows["accuracy"] == pytest.approx((0.7 + 0.15) / 2)
    assert (rows["accuracy_G_lda"], rows["accuracy_G_gbm"]) == pytest.approx((0.7, 0.15))
    assert rows["classifiers"] == 2
    assert rows["accuracy_std"] == pytest.approx(stdev([0.35, 0.5]))  # of the means over kinds
    assert "calibrated_accuracy" not in rows
    assert "accuracy_optimistic_max" not in rows
    alone = stage_rows([one_kind("lda", 60), one_kind("gbm", 10)], [[0]])
    assert "accuracy_std" not in alone


def test_calibration_is_the_mean_of_ratios() -> None:
    """Not the ratio of means: 001 prints 69 % for ratios that average 68.8."""
    rows = stage_rows(
        [one_kind("lda", 45, real_data_accuracy=0.9), one_kind("gbm", 20, real_data_accuracy=0.25)],
        [[0]],
    )
    assert rows["calibrated_accuracy"] == pytest.approx((0.5 + 0.8) / 2)
    assert (rows["real_G_lda"], rows["real_G_gbm"]) == (0.9, 0.25)


def test_the_printed_calibrated_average_of_paper_001_follows_from_its_rows() -> None:
    """Column "Ours" of MNIST, table A1: mean of the ratios 68.8, printed 69."""
    real = [0.98, 0.99, 0.73, 0.93, 0.84, 0.88, 0.56, 0.91, 0.88, 0.92, 0.93, 0.97, 0.91]
    ours = [0.79, 0.80, 0.21, 0.45, 0.77, 0.35, 0.64, 0.39, 0.78, 0.76, 0.79, 0.52, 0.50]
    results = [
        one_kind(f"c{i}", round(100 * o), real_data_accuracy=r)
        for i, (o, r) in enumerate(zip(ours, real, strict=True))
    ]
    assert stage_rows(results, [[0]])["calibrated_accuracy"] == pytest.approx(0.688, abs=2e-3)


def test_the_best_epoch_is_a_separate_metric() -> None:
    rows = stage_rows(
        [
            one_kind("a", 50, best_test_accuracy=0.6, tests_during_training=9),
            one_kind("a", 70, best_test_accuracy=0.7, tests_during_training=9),
        ],
        [[0]],
    )
    assert rows["accuracy"] == pytest.approx(0.6)
    assert rows["accuracy_optimistic_max"] == pytest.approx(0.65)
    assert rows["tests_on_the_way"] == 9
