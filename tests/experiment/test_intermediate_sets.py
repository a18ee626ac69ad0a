"""Intermediate sets: the epsilon of the steps before each, and classifiers trained on each."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_runs as tiny

from fedsynth.api.evaluation import evaluate_run
from fedsynth.cli import evaluate
from fedsynth.cli.run import main as run_main
from fedsynth.core.errors import UserError
from fedsynth.experiment.intermediate_sets import all_steps, event_after, read_curve
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.storage.run_directory import RunDirectory

WORDS = (
    "scenario=classification preset=smoke data=shapes method=psg,ldpdc epsilon=10 seed=0 "
    "psg.intermediate=2 psg.runs=3 psg.width=4 evaluation.width=4 evaluation.max_images=200 "
    "evaluation.nets=2 engine=inprocess --quiet"
)
ENGINE = {"engine": "inprocess"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tiny run of a method with intermediate sets and of one without."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert run_main([*WORDS.split(), f"out={out}"]) == 0
    return out


@pytest.mark.parametrize(("name", "steps"), [("psg", 8), ("psg_joint", 8), ("gs_wgan", 4)])
def test_epsilon_grows_with_the_steps_to_that_of_the_plan(name: str, steps: int, tmp_path) -> None:
    job = tiny.tiny_job(name, tmp_path, "together")
    plan = job.plan(0)
    assert all_steps(plan) == steps
    for share in plan.parties:
        costs = [job.epsilon(event_after(job, share, n), "rdp") for n in range(1, steps + 1)]
        assert costs == sorted(costs)
        assert costs[0] < costs[-1] == job.epsilon(share.event, "rdp")
        assert event_after(job, share, steps + 1) == share.event


def test_a_set_of_a_reference_is_disclosed_whenever_it_is_taken(tmp_path) -> None:
    job = tiny.tiny_job("gradient_matching", tmp_path, "together")
    assert {str(event_after(job, share, 1)) for share in job.plan(0).parties} == {str(disclosed())}


def test_accuracy_is_measured_over_the_epsilon_spent_by_then(run: Path, capsys) -> None:
    overrides = {**ENGINE, "evaluation": {"classifier": ["convnet", "mlp"]}}
    rows = read_curve(evaluate_run(RunDirectory.read(run), overrides, sets="intermediate"))
    assert [(row.steps, row.classifier) for row in rows] == [
        (steps, name) for steps in (10, 20, 30) for name in ("convnet", "mlp")
    ]
    assert {row.method for row in rows} == {"psg"}
    spent = [row.epsilon_pld for row in rows[::2]]
    assert 0 < spent[0] < spent[1] < spent[2] <= 10
    stored = sorted(run.glob("evaluations/*/psg*/after-*.json"))
    assert len(stored) == 3 * 2 * 2  # sets, classifiers, networks
    again = read_curve(evaluate_run(RunDirectory.read(run), overrides, sets="intermediate"))
    assert again == rows
    assert evaluate.main([str(run), "sets=intermediate", "engine=inprocess"]) == 0
    assert "| `psg` | 10 | 0 | 30 |" in capsys.readouterr().out


def test_the_last_row_is_the_accuracy_of_the_run(run: Path) -> None:
    rows = read_curve(evaluate_run(RunDirectory.read(run), ENGINE, sets="intermediate"))
    metrics = RunDirectory.read(run).metrics()
    (whole,) = (m.value for m in metrics if (m.method, m.metric) == ("psg", "accuracy"))
    assert rows[-1].accuracy == pytest.approx(whole)


def test_what_cannot_be_evaluated_is_named(run: Path) -> None:
    with pytest.raises(UserError, match=r"unknown sets 'intermediat'"):
        evaluate_run(RunDirectory.read(run), ENGINE, sets="intermediat")
    with pytest.raises(UserError, match=r"METHOD\.intermediate=N"):
        evaluate_run(RunDirectory.read(run), {**ENGINE, "method": ["ldpdc"]}, sets="intermediate")


def test_gs_wgan_has_a_curve_too(tmp_path: Path) -> None:
    """Two passes over three subsets: epsilon is that of one turn, then of two."""
    out = tmp_path / "run"
    words = (
        "scenario=classification preset=smoke data=shapes method=gs_wgan epsilon=10 seed=0 "
        "gs_wgan.subsets=3 gs_wgan.steps=6 gs_wgan.per_round=1 gs_wgan.warm_steps=0 "
        "gs_wgan.depth=8 gs_wgan.width=4 gs_wgan.spc=20 gs_wgan.intermediate=5 "
        "evaluation.width=4 evaluation.max_images=200 engine=inprocess --quiet"
    )
    assert run_main([*words.split(), f"out={out}"]) == 0
    rows = read_curve(evaluate_run(RunDirectory.read(out), ENGINE, sets="intermediate"))
    assert [row.steps for row in rows] == [1, 2, 3, 4, 5, 6]
    spent = [row.epsilon_pld for row in rows]
    assert spent == [spent[0]] * 3 + [spent[-1]] * 3
    assert spent[0] < spent[-1] == pytest.approx(10, rel=1e-3)
