"""Estimates of time follow the schedules, count tests, and cover every classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import release, tiny_job

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.types import Budget, ComputeCost, DatasetInfo, PartyInfo, Stage
from fedsynth.engine.base import Engine
from fedsynth.evaluation.classical_classifiers import CLASSICAL
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.protocols import PROTOCOLS
from fedsynth.experiment import cost_model as cost
from fedsynth.experiment.cost_model import (
    FITS,
    baseline_seconds,
    classifier_seconds,
    ends_in_model,
    evaluation_seconds,
    fit_seconds,
    released_images,
)
from fedsynth.experiment.job import Job
from fedsynth.methods.gs_wgan.config import GSWGANConfig
from fedsynth.methods.gs_wgan.gs_wgan import GSWGAN
from fedsynth.storage.run_directory import RunDirectory

FACTS = DatasetInfo("digits", (1, 28, 28), 10, (0.1,), (0.3,))
STEP, ANSWER = 0.002, 0.0005  # seconds an image


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every network takes the same."""
    monkeypatch.setattr(cost, "training_seconds", lambda *_: STEP)
    monkeypatch.setattr(cost, "test_seconds", lambda *_: ANSWER)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("setting", "images", "expected"),
    [
        (EvaluationConfig("P"), 100, 3 * (301 * 100 * STEP + 1000 * ANSWER)),
        (EvaluationConfig("P", classifier=("mlp", "lenet"), nets=1), 100, 2 * (30100 * STEP + 0.5)),
        (EvaluationConfig("P", max_images=6400, batch=16, nets=1), 60_000, 400 * 16 * STEP + 0.5),
        (EvaluationConfig("D"), 512, 1001 * 512 * STEP + 0.5),
        (EvaluationConfig("L", epochs=7), 1024, 7 * 1024 * STEP + 7 * 1000 * ANSWER),
        (EvaluationConfig("L", max_images=102_400), 102_400, 100 * 1024 * STEP + 1000 * ANSWER),
    ],
)
def test_steps_and_tests_are_those_of_the_schedule(
    setting: EvaluationConfig, images: int, expected: float
) -> None:
    assert classifier_seconds(setting, FACTS, images, 1000) == pytest.approx(expected, rel=0.03)


@pytest.mark.usefixtures("known")
def test_classical_classifiers_are_counted_one_by_one() -> None:
    names = tuple(CLASSICAL)
    some = EvaluationConfig("G", classifier=names, suite_images=2000)
    expected = sum(fit_seconds(name, FACTS, 2000) for name in names)
    assert classifier_seconds(some, FACTS, 60_000, 1000) == pytest.approx(expected)
    assert classifier_seconds(replace(some, nets=2), FACTS, 60_000, 1000) == pytest.approx(
        2 * expected
    )
    assert classifier_seconds(some, FACTS, 500, 1000) < expected


def test_every_classical_classifier_has_a_cost() -> None:
    assert set(FITS) == set(CLASSICAL)
    assert all(steps > 0 and 0 <= power <= 2.5 for steps, power in FITS.values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_network_can_be_timed(protocol: str) -> None:
    name = {"G": "cnn", "L": "keras_cnn"}.get(protocol, "mlp")
    setting = EvaluationConfig(protocol, classifier=(name,), epochs=1)
    assert 0 < classifier_seconds(setting, FACTS, 10, 10) < 60


def test_quality_is_counted_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "scorer_seconds", lambda *_, training: 0.01 if training else 0.001)
    plain = EvaluationConfig()
    assert cost.quality_seconds(plain, FACTS, 100, 100) == 0
    assert cost.scorer_training_seconds(plain, FACTS, 100) == 0
    cheap = EvaluationConfig(quality=True, scorer_images=1280)
    assert cost.scorer_training_seconds(cheap, FACTS, 60_000) == pytest.approx(12.8)
    assert cost.quality_seconds(cheap, FACTS, 500, 1000) == pytest.approx(11.5)  # 10,000 real ones


def test_the_scorer_can_be_timed() -> None:
    assert cost.scorer_seconds(2, FACTS, training=True) > 0
    assert cost.scorer_seconds(2, FACTS, training=False) > 0


@pytest.mark.parametrize(
    "kind", ["gradient", "match", "train", "critic", "dcgan draw", "dcgan step", "resnet step"]
)
def test_every_kind_of_work_can_be_timed(kind: str) -> None:
    work = [ComputeCost(kind, 4, 2, 3, "bfloat16")]
    assert 0 < cost.work_seconds(work, FACTS) < 60


def test_a_plan_of_gs_wgan_counts_its_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per critic step one draw of images; per warm step and per round one step of a generator."""
    units = {"critic": 1.0, "dcgan draw": 10.0, "dcgan step": 100.0}
    monkeypatch.setattr(cost, "_probe", lambda kind, *_: units[kind])
    cfg = GSWGANConfig(generator="dcgan", subsets=4, steps=8, warm_steps=3, critic_steps=5)
    parties = (PartyInfo(0, 1000, dict.fromkeys(range(10), 100)),)
    stage = Stage(FACTS, 0, 1, parties, tuple(range(10)), tuple(range(10)))
    plan = GSWGAN().plan(cfg, stage, Budget(10.0, 1e-5))
    warm = 4 * 3
    expected = 5 * (8 + warm) * (1.0 + 10.0) + 100.0 * (warm + 8)
    assert cost.release_seconds(plan) == pytest.approx(expected)


class FakeClock:
    """Processor time that only the work under test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(cost.time, "process_time", lambda: self.now)


def test_a_slow_first_call_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step of a process imports modules: 401 seconds were predicted for 3."""
    clock = FakeClock(monkeypatch)
    taken = iter([400.0, *[0.3] * 100])

    def slow_at_first(*_: object, **__: object) -> None:
        clock.now += next(taken)

    monkeypatch.setattr(cost, "clipped_gradient_sum", slow_at_first)
    monkeypatch.setattr(cost, "_probe", cost._probe.__wrapped__)
    work = [ComputeCost("gradient", 2, 64, 10)]
    assert cost.work_seconds(work, FACTS) == pytest.approx(3.0)


def test_one_disturbed_call_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(monkeypatch)
    taken = iter([0.1, 0.1, 0.9, 0.1, 0.1, 0.1])

    def run() -> None:
        clock.now += next(taken)

    assert cost.typical_seconds(run) == pytest.approx(0.1)


def test_a_step_is_timed_at_its_own_batch_and_type(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, str]] = []

    def noted(kind: str, width: int, data: DatasetInfo, count: int, dtype: str) -> float:
        seen.append((count, dtype))
        return 0.01 * count

    monkeypatch.setattr(cost, "_probe", noted)
    work = [
        ComputeCost("match", 2, 20, 3, "bfloat16"),
        ComputeCost("gradient", 2, 256, 1),
        ComputeCost("train", 2, 0, 7),
    ]
    assert cost.work_seconds(work, FACTS) == pytest.approx(3 * 0.2 + 2.56)
    assert seen == [(20, "bfloat16"), (128, "float32")]


# Jobs


def job(tmp_path: Path, name: str, **changes: Any) -> Job:
    """A tiny job with these fields changed."""
    return replace(tiny_job(name, tmp_path / name), **changes)


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
    assert ends_in_model(mine) == model
    if model:
        assert baseline_seconds([mine]) == 0


def test_real_data_are_counted_once_and_only_where_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "classifier_seconds", lambda *_: 100.0)
    monkeypatch.setattr(cost, "scorer_training_seconds", lambda *_: 7.0)
    monkeypatch.setattr(cost, "quality_seconds", lambda *_: 1.0)
    calibrated = EvaluationConfig("G", classifier=("lda",))
    settings: Mapping[str, EvaluationConfig] = {"P": EvaluationConfig(), "G": calibrated}
    jobs = {
        k: [job(tmp_path, n, evaluation=v) for n in ("ldpdc", "psg")] for k, v in settings.items()
    }
    assert baseline_seconds(jobs["P"]) == 7
    assert baseline_seconds(jobs["G"]) == 207  # two stages
    assert evaluation_seconds(jobs["G"][0]) == 202
