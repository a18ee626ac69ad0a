"""The planned cost of the evaluation: released images as they will be, real data apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import release, tiny_job

from fedsynth.cli import plan_table as planning
from fedsynth.cli.plan_table import (
    evaluation_seconds,
    hands_on_a_model,
    once_seconds,
    plan_table,
    released_images,
)
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.engine.base import Engine
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment.job import Job
from fedsynth.storage.run_directory import RunDirectory


def job(tmp_path: Path, name: str, scenario: str = "together", **changes: Any) -> Job:
    """A tiny job with these fields changed."""

    return dataclasses.replace(tiny_job(name, tmp_path / name), **changes)


@pytest.mark.parametrize("scenario", ["in_turn", "together"])
@pytest.mark.parametrize(
    "name",
    ["ldpdc", "psg", "psg_joint", "dp_merf", "upper_bound", "sketch_teach", "sketch_teach_joint"],
)
def test_images_are_foreseen(name: str, scenario: str, tmp_path: Path, here: Engine) -> None:
    mine = tiny_job(name, tmp_path / "run", scenario)
    release(mine, here)
    run = RunDirectory(Path(mine.out))
    for stage, plan in enumerate(mine.plans):
        outcome = run.releases.load(mine.name, stage + 1)
        assert isinstance(outcome, SyntheticSet)
        assert released_images(mine, plan) == pytest.approx(len(outcome.labels), rel=0.1)


@pytest.mark.parametrize(
    ("name", "model"), [("dp_sgd", True), ("psg", False), ("upper_bound", False)]
)
def test_a_model_is_tested_once_and_not_trained(name: str, model: bool, tmp_path: Path) -> None:
    mine = job(tmp_path, name)
    assert hands_on_a_model(mine) == model
    if model:
        assert once_seconds([mine]) == 0


def test_real_data_are_counted_once_and_only_where_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning.cost_model, "evaluation_seconds", lambda *_: 100.0)
    monkeypatch.setattr(planning.cost_model, "scorer_training_seconds", lambda *_: 7.0)
    monkeypatch.setattr(planning.cost_model, "quality_seconds", lambda *_: 1.0)
    calibrated = EvaluationConfig("G", classifier=("lda",))
    settings: Mapping[str, EvaluationConfig] = {"P": EvaluationConfig(), "G": calibrated}
    jobs = {
        k: [job(tmp_path, n, evaluation=v) for n in ("ldpdc", "psg")] for k, v in settings.items()
    }
    assert once_seconds(jobs["P"]) == 7
    assert once_seconds(jobs["G"]) == 207  # two stages
    assert evaluation_seconds(jobs["G"][0]) == 202
    assert "on real data, once and then kept on disk" in str(plan_table(jobs["G"], "t").caption)
