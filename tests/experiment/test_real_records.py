"""Classifiers on some of the real records: more of them are better, and numbers are checked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fedsynth.core.errors import UserError
from fedsynth.engine.base import Engine
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.real_records import measure_real_records
from fedsynth.storage.metrics import MetricsFile
from fedsynth.storage.run_directory import RunDirectory

WORDS = ["scenario=classification", "data=shapes", "method=ldpdc", "epsilon=10", "seed=0,1"]


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """A run over generated shapes that is evaluated with two small networks."""
    config = resolve(parse_overrides(WORDS))
    evaluation = EvaluationConfig("P", "mlp", nets=2, width=8, epochs=20, max_images=2000)
    config = dataclasses.replace(config, evaluation=evaluation)
    return Experiment.of(config, tmp_path / "run")


def test_more_records_are_better_and_runs_can_be_extended(
    tmp_path: Path, experiment: Experiment, here: Engine
) -> None:
    run = RunDirectory.create(tmp_path / "run")
    file = measure_real_records(run, experiment, [10], here)
    first = {(row.seed, row.metric): row.value for row in MetricsFile(file).read()}
    measure_real_records(run, experiment, [400], here)
    found = {(row.seed, row.metric): row.value for row in MetricsFile(file).read()}
    assert set(found) == {(s, f"accuracy_with_{n}") for s in (0, 1) for n in (10, 400)}
    assert {key: found[key] for key in first} == first
    for seed in (0, 1):
        assert found[seed, "accuracy_with_400"] > found[seed, "accuracy_with_10"] + 0.05
    assert found[0, "accuracy_with_10"] != found[1, "accuracy_with_10"]  # seeds draw their own
    written = [path.name for path in run.path.rglob("*") if path.is_file()]
    assert sorted(written) == ["log.txt", "real_records.csv"]  # no record leaves


@pytest.mark.parametrize("count", [0, 9, 10**9])
def test_impossible_numbers_of_records_are_refused(
    tmp_path: Path, experiment: Experiment, here: Engine, count: int
) -> None:
    run = RunDirectory.create(tmp_path / "run")
    with pytest.raises(UserError, match=rf"real={count} must be .* from 10 \(one per class\)"):
        measure_real_records(run, experiment, [count], here)
