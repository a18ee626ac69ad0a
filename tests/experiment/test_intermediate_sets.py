"""Intermediate sets: the epsilon of the steps before each, and classifiers trained on each."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsynth.api.evaluation import evaluate_run
from fedsynth.cli import evaluate
from fedsynth.cli.run import main as run_main
from fedsynth.core.errors import UserError
from fedsynth.core.plan import PartyPlan
from fedsynth.experiment.intermediate_sets import event_after, read_curve
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import disclosed, gaussian, poisson, repeated
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


def test_the_event_of_the_first_steps_is_counted_alone() -> None:
    step = poisson(0.01, gaussian(1.0))
    share = PartyPlan(0, 1000, repeated(step, 50), sampling_rate=0.01, steps=50)
    assert epsilon(event_after(share, 10), 1e-5, "pld") == epsilon(repeated(step, 10), 1e-5, "pld")
    assert epsilon(event_after(share, 50), 1e-5, "pld") == epsilon(share.event, 1e-5, "pld")
    assert event_after(share, 60) == share.event
    reference = PartyPlan(0, 1000, disclosed(), steps=50)
    assert event_after(reference, 10) == disclosed()


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
