"""Worth of a release in real records, by interpolation and bounds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedsynth.experiment.real_records import METHOD, real_records_file
from fedsynth.report.worth import real_records_curve, worth
from fedsynth.storage.metrics import Metric, MetricsFile
from fedsynth.storage.run_directory import RunDirectory

CURVE = {10: 0.5, 100: 0.7, 1000: 0.68, 10_000: 0.9}


@pytest.mark.parametrize(
    ("accuracy", "text"),
    [
        (0.499, "fewer than 10"),
        (0.5, "about 10"),
        (0.6, "about 32"),
        (0.7, "about 100"),
        (0.8, "about 1,000"),
        (0.9, "at least 10,000"),
        (0.99, "at least 10,000"),
    ],
)
def test_worth_is_interpolated_in_the_logarithm(accuracy: float, text: str) -> None:
    assert worth(accuracy, CURVE).text == text


def test_more_accuracy_is_never_worth_less() -> None:
    found = [worth(step / 100, CURVE).records for step in range(101)]
    assert found == sorted(found)


def test_one_number_gives_bounds_only() -> None:
    assert [worth(a, {50: 0.5}).text for a in (0.4, 0.5)] == ["fewer than 50", "at least 50"]


def test_a_curve_that_stays_flat_at_its_end_is_worth_its_first_number() -> None:
    assert worth(0.95, {10: 0.5, 100: 0.9, 1000: 0.9}).text == "at least 100"


def test_the_curve_is_a_mean_over_seeds(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    assert real_records_curve(run) == {}
    (run.path / "evaluations").mkdir()
    MetricsFile(real_records_file(run)).add(
        Metric(METHOD, math.inf, seed, 1, f"accuracy_with_{count}", value + seed / 10)
        for count, value in ((1000, 0.8), (50, 0.4))
        for seed in (0, 1)
    )
    assert real_records_curve(run) == pytest.approx({50: 0.45, 1000: 0.85})
