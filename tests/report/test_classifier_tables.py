"""The tables of classifiers and of images hold what was measured."""

from __future__ import annotations

import math

import pytest

from fedsynth.evaluation.classical_classifiers import SUITE
from fedsynth.report.classifier_tables import by_classifier, by_quality, markdown, section
from fedsynth.report.summary import frame, judged_words, summarise
from fedsynth.storage.metrics import Metric


def judged(names: tuple[str, ...], protocol: str = "G") -> list[Metric]:
    metrics = []
    for seed in (0, 1):
        for method, epsilon in (("psg", 10.0), ("upper_bound", math.inf)):
            values = {f"accuracy_{protocol}_{n}": 0.5 + i / 100 for i, n in enumerate(names)}
            values |= {f"real_{protocol}_{n}": 0.9 for n in names}
            values |= {"accuracy": 0.55 + seed / 10, "classifiers": len(names)}
            values |= {"calibrated_accuracy": 0.625}
            metrics += [Metric(method, epsilon, seed, 2, k, v) for k, v in values.items()]
            metrics += [Metric(method, epsilon, seed, 1, k, 0.0) for k in values]
        metrics.append(Metric("dp_sgd", 10.0, seed, 2, "accuracy", 0.2))
        metrics.append(Metric("dp_sgd", 10.0, seed, 2, "accuracy_none_convnet", 0.2))
    return metrics


def test_a_column_a_classifier_the_averages_and_the_real_data() -> None:
    names = tuple(n for n in SUITE if n != "xgboost")
    listing = by_classifier(frame(judged(names)))
    assert listing is not None
    assert set(listing.headings[2:-2]) == {n.replace("_", " ") for n in names}
    rows = {row[0]: dict(zip(listing.headings, row, strict=True)) for row in listing.rows}
    assert set(rows) == {"psg", "upper_bound", "real data"}  # a released model has one judge
    assert rows["psg"]["random forest"] == "0.510"
    assert rows["psg"]["average"] == "0.600"  # of the last stage, mean over seeds
    assert rows["psg"]["calibrated average"] == "0.625"
    assert rows["real data"]["random forest"] == rows["real data"]["average"] == "0.900"
    assert "Protocol G" in listing.caption
    assert "over these 12 classifiers (of 13, without xgboost)" in listing.caption
    assert "SAMME.R" in listing.caption


def test_several_nets_of_another_protocol_are_listed_without_calibration() -> None:
    metrics = [m for m in judged(("convnet", "mlp"), "P") if "real" not in m.metric]
    metrics = [m for m in metrics if m.metric != "calibrated_accuracy"]
    listing = by_classifier(frame(metrics))
    assert listing is not None
    assert listing.headings == ("method", "ε", "convnet", "mlp", "average")
    assert "without" not in listing.caption


@pytest.mark.parametrize("metrics", [[], judged(("lda",))[:0], [Metric("psg", 1.0, 0, 1, "x", 1)]])
def test_one_judge_or_none_is_no_table(metrics: list[Metric]) -> None:
    assert by_classifier(frame(metrics)) is None
    assert by_quality(frame(metrics)) is None
    assert section(frame(metrics)) == ""


def test_quality_has_its_own_table() -> None:
    values = {"inception_score": 3.25, "fid_lite": 1234.5, "quality_images": 20000.0}
    listing = by_quality(frame(Metric("psg", 1.0, 0, 1, k, v) for k, v in values.items()))
    assert listing is not None
    assert listing.headings == ("method", "ε", "Inception Score", "FID-lite", "images")
    assert listing.rows == (("psg", "1", "3.250", "1,234", "20,000"),)
    assert "not with published numbers" in listing.caption
    text = markdown(listing)
    assert "| psg | 1 | 3.250 | 1,234 | 20,000 |" in text
    assert 'id="classifiers"' in section(
        frame(Metric("psg", 1.0, 0, 1, k, v) for k, v in values.items())
    )


def test_the_summary_names_protocol_and_judges() -> None:
    many = judged_words(summarise(frame(judged(SUITE))))
    assert "protocol G, mean over 13 classifiers" in many
    assert "calibrated average: psg 10 0.625" in many
    best = [
        Metric("datalens", 1.0, 0, 1, name, value)
        for name, value in (("accuracy_L_keras_cnn", 0.5), ("accuracy_optimistic_max", 0.625))
    ]
    words = judged_words(summarise(frame(best)))
    assert words.startswith("protocol L, keras_cnn; best epoch on the test data (optimistic): ")
    assert words.endswith("datalens 1 0.625")
    assert judged_words(summarise(frame([]))) == ""
