"""Estimates agree with a calculation by hand and with Student's printed quantiles."""

from __future__ import annotations

import math
import statistics

import pytest

from fedsynth.report.estimates import Estimate, final_results
from fedsynth.report.summary import frame
from fedsynth.storage.metrics import Metric


@pytest.mark.parametrize(("count", "quantile"), [(2, 12.706), (3, 4.303), (5, 2.776)])
def test_intervals_have_the_printed_quantiles(count: int, quantile: float) -> None:
    values = [0.5 + 0.004 * i for i in range(count)]
    found = Estimate.of(values)
    half = quantile * statistics.stdev(values) / math.sqrt(count)
    assert found.low is not None
    assert found.high is not None
    assert found.mean == pytest.approx(statistics.mean(values))
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=1e-3)


def test_one_seed_has_no_interval_and_no_interval_leaves_what_is_possible() -> None:
    assert Estimate.of([0.87]).text == "87.0%"
    found = Estimate.of([0.99, 0.5])
    assert (found.low, found.high) == (0.0, 1.0)
    assert found.text == "74.5% (95% interval 0.0% to 100.0%)"


def test_only_what_reached_the_last_stage_counts() -> None:
    rows = [Metric("psg", 1.0, seed, 1, "accuracy", 0.9) for seed in (0, 1)]
    rows += [Metric("psg", 1.0, 0, 2, "accuracy", 0.6)]  # seed 1 failed after stage 1
    rows += [Metric("psg", 1.0, seed, stage, "images", 10) for seed in (0, 1) for stage in (1, 2)]
    rows += [Metric("ldpdc", 1.0, 0, 1, "accuracy", 0.99)]  # failed after stage 1
    rows += [Metric("dp_sgd", 1.0, 0, 2, "accuracy", 0.2)]
    dp_sgd, psg = final_results(frame(rows))
    assert (psg.method, psg.accuracy.mean, psg.accuracy.seeds, psg.released) == ("psg", 0.6, 1, 20)
    assert (dp_sgd.method, dp_sgd.released) == ("dp_sgd", None)
    assert final_results(frame([])) == []
