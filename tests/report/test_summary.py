"""The summary agrees with a calculation by hand and copes with missing metrics."""

from __future__ import annotations

import io
import math
import statistics

import pytest
from report_pages import classifier_metrics
from rich.console import Console

from fedsynth.evaluation.classical_classifiers import SUITE
from fedsynth.experiment.evaluation_data import HOLD_OUT, TEST_DATA, EvaluationData
from fedsynth.report.summary import (
    SummaryRow,
    frame,
    protocol_text,
    rich_table,
    summarise,
    table_note,
)
from fedsynth.storage.metrics import Metric

ACCURACY = {0: [0.9, 0.8], 1: [0.7, 0.5], 2: [0.8, 0.9]}


def three_seeds() -> list[Metric]:
    metrics = [
        Metric("psg", 10.0, seed, stage, "accuracy", value)
        for seed, values in ACCURACY.items()
        for stage, value in enumerate(values, 1)
    ]
    for seed in ACCURACY:
        metrics += [Metric("psg", 10.0, seed, stage, "accuracy_std", 0.5) for stage in (1, 2)]
        metrics += [
            Metric("psg", 10.0, seed, stage, "seconds_release", 10 * seed + stage)
            for stage in (1, 2)
        ]
        metrics += [
            Metric("psg", 10.0, seed, stage, "epsilon_pld", stage + seed) for stage in (1, 2)
        ]
        metrics.append(Metric("psg", 10.0, seed, 2, "forgetting", seed / 10))
        metrics.append(Metric("psg", 10.0, seed, 1, "forgetting", 99.0))
    return metrics


def shown(rows: list[SummaryRow], width: int, tested: EvaluationData = TEST_DATA) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(rich_table(rows, tested, "a [red]title", width))
    return stream.getvalue()


def test_means_and_deviations_are_over_seeds() -> None:
    (row,) = summarise(frame(three_seeds()))
    for stage in (1, 2):
        values = [ACCURACY[seed][stage - 1] for seed in ACCURACY]
        assert row.accuracy[stage].mean == pytest.approx(statistics.mean(values))
        assert row.accuracy[stage].deviation == pytest.approx(statistics.stdev(values))
    assert row.forgetting is not None
    assert row.forgetting.mean == pytest.approx(0.1)  # of the last stage only
    assert row.seconds == pytest.approx(statistics.mean([3, 23, 43]))
    assert row.epsilon_pld == 4
    assert row.epsilon_rdp is None
    assert row.average is None
    assert "over seeds" in table_note([row], TEST_DATA)


def test_one_seed_shows_the_spread_over_classifiers() -> None:
    (row,) = summarise(frame([m for m in three_seeds() if m.seed == 1]))
    assert row.accuracy[2].mean == pytest.approx(0.5)
    assert row.accuracy[2].deviation == pytest.approx(0.5)
    assert "over classifiers" in table_note([row], TEST_DATA)


def test_references_come_last_and_infinity_is_shown() -> None:
    metrics = [
        Metric("upper", math.inf, 0, 1, "accuracy", 0.99),
        Metric("upper", math.inf, 0, 1, "epsilon_pld", math.inf),
        Metric("psg", 10.0, 0, 1, "accuracy", 0.9),
        Metric("psg", 1.0, 0, 1, "accuracy", 0.8),
    ]
    rows = summarise(frame(metrics))
    assert [(row.method, row.epsilon) for row in rows] == [
        ("psg", 1.0),
        ("psg", 10.0),
        ("upper", math.inf),
    ]
    assert "∞" in shown(rows, 120)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_terminal_table_cuts_no_number(width: int) -> None:
    metrics = [
        Metric(method, epsilon, seed, stage, name, 0.123 if "acc" in name else 4.567)
        for method, epsilon in (("gradient_matching", math.inf), ("psg", 10.0))
        for seed in (0, 1)
        for stage in range(1, 6)
        for name in ("accuracy", "epsilon_pld", "forgetting", "seconds_release")
    ]
    text = shown(summarise(frame(metrics)), width)
    assert "…" not in text
    assert "gradient_matching" in text
    assert text.count("0.123") == 10
    assert text.count("±0.000") >= 10
    assert "a [red]title" in text
    assert ("release" in text) == (width >= 120)


def test_one_stage_has_no_mean_and_no_forgetting() -> None:
    metrics = [Metric("psg", 10.0, 0, 1, "accuracy", 0.9), *three_seeds()]
    one = [m for m in metrics if m.stage == 1]
    for width in (50, 120):
        text = shown(summarise(frame(one)), width)
        assert ["method", "ε", "accuracy", "ε", "PLD"] in [x.split()[:5] for x in text.splitlines()]
        assert "0.8" in text
        assert not {"mean", "forget", "stage"} & set(text.split())
    assert {"mean", "forget"} <= set(shown(summarise(frame(metrics)), 120).split())


def test_the_terminal_names_what_was_tested_on() -> None:
    one = summarise(frame([m for m in three_seeds() if m.stage == 1]))
    several = summarise(frame(three_seeds()))
    captions = {
        tested.name: [" ".join(shown(rows, 200, tested).split()) for rows in (one, several)]
        for tested in (TEST_DATA, HOLD_OUT)
    }
    single, stages = captions["the test data"]
    assert "accuracy on the test data; " in single
    assert "accuracy after each stage; " in stages
    single, stages = captions["a hold-out of the training data"]
    assert "accuracy on a hold-out of the training data; " in single
    assert "accuracy after each stage on a hold-out of the training data; " in stages


def test_nothing_measured_is_an_empty_table_and_no_error() -> None:
    rows = summarise(frame([]))
    assert rows == []
    shown(rows, 80)
    (row,) = summarise(frame([Metric("psg", 1.0, 0, 1, "steps", 5)]))
    assert row.accuracy == {}
    assert "–" in shown([row], 80)


def test_the_summary_names_protocols_and_classifiers() -> None:
    many = protocol_text(summarise(frame(classifier_metrics(SUITE))), TEST_DATA)
    assert "protocol G, mean over 13 classifiers" in many
    assert "calibrated average: psg 10 0.625" in many
    best = [
        Metric("datalens", 1.0, 0, 1, name, value)
        for name, value in (("accuracy_L_keras_cnn", 0.5), ("accuracy_optimistic_max", 0.625))
    ]
    text = protocol_text(summarise(frame(best)), TEST_DATA)
    assert text.startswith("protocol L, keras_cnn; best epoch on the test data (optimistic): ")
    assert text.endswith("datalens 1 0.625")
    held = protocol_text(summarise(frame(best)), HOLD_OUT)
    assert "; best epoch on a hold-out of the training data (optimistic): " in held
    assert protocol_text(summarise(frame([])), TEST_DATA) == ""
