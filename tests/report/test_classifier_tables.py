"""The tables of classifiers and of images hold the measured values."""

from __future__ import annotations

import pytest
from report_pages import classifier_metrics

from fedsynth.evaluation.classical_classifiers import SUITE
from fedsynth.report.classifier_tables import by_classifier, by_quality, markdown
from fedsynth.report.summary import frame
from fedsynth.storage.metrics import Metric


def test_columns_are_classifiers_averages_and_real_data() -> None:
    names = tuple(n for n in SUITE if n != "xgboost")
    listing = by_classifier(frame(classifier_metrics(names)))
    assert listing is not None
    assert set(listing.headings[2:-2]) == {n.replace("_", " ") for n in names}
    rows = {row[0]: dict(zip(listing.headings, row, strict=True)) for row in listing.rows}
    assert set(rows) == {"psg", "upper_bound", "real data"}  # a released model has one classifier
    assert rows["psg"]["random forest"] == "0.510"
    assert rows["psg"]["average"] == "0.600"  # of the last stage, mean over seeds
    assert rows["psg"]["calibrated average"] == "0.625"
    assert rows["real data"]["random forest"] == rows["real data"]["average"] == "0.900"
    assert "Protocol G" in listing.caption
    assert "over these 12 classifiers (of 13, without xgboost)" in listing.caption


def test_several_nets_of_another_protocol_are_listed_without_calibration() -> None:
    metrics = [m for m in classifier_metrics(("convnet", "mlp"), "P") if "real" not in m.metric]
    metrics = [m for m in metrics if m.metric != "calibrated_accuracy"]
    listing = by_classifier(frame(metrics))
    assert listing is not None
    assert listing.headings == ("method", "ε", "convnet", "mlp", "average")
    assert "without" not in listing.caption


@pytest.mark.parametrize(
    "metrics", [[], classifier_metrics(("lda",))[:0], [Metric("psg", 1.0, 0, 1, "x", 1)]]
)
def test_one_classifier_or_none_makes_no_table(metrics: list[Metric]) -> None:
    assert by_classifier(frame(metrics)) is None
    assert by_quality(frame(metrics)) is None


def test_quality_has_its_own_table() -> None:
    values = {"inception_score": 3.25, "fid_lite": 1234.5, "quality_images": 20000.0}
    listing = by_quality(frame(Metric("psg", 1.0, 0, 1, k, v) for k, v in values.items()))
    assert listing is not None
    assert listing.headings == ("method", "ε", "Inception Score", "FID-lite", "images")
    assert listing.rows == (("psg", "1", "3.250", "1,234", "20,000"),)
    assert "not with published numbers" in listing.caption
    text = markdown(listing)
    assert "| psg | 1 | 3.250 | 1,234 | 20,000 |" in text
