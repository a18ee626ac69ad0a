"""Evaluation of releases at a later time: what is the same, what is refused, what is not spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsynth.api.evaluation import evaluate_run, other_evaluation
from fedsynth.cli import evaluate
from fedsynth.cli.run import main as run_main
from fedsynth.core.errors import UserError
from fedsynth.experiment.reevaluation import EVALUATIONS
from fedsynth.storage.metrics import MetricsFile
from fedsynth.storage.run_directory import RunDirectory

WORDS = (
    "scenario=split_mnist data=shapes parties=2 options={} method=ldpdc,upper_bound epsilon=10 "
    "ldpdc.spc=3 evaluation.width=4 evaluation.max_images=200 evaluation.nets=2 engine=inprocess "
    "holdout=1600 --quiet"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tiny run with one private method and one reference."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert run_main([*WORDS.split(), f"out={out}"]) == 0
    return out


def values(path: Path) -> dict[tuple[int, str], float]:
    """The metrics of ldpdc by stage and name."""
    rows = MetricsFile(path).read()
    return {(row.stage, row.metric): row.value for row in rows if row.method == "ldpdc"}


def test_the_same_evaluation_gives_the_numbers_of_the_run(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.glob("parties/**/ledger.jsonl")}
    metrics = evaluate_run(RunDirectory.read(run), {"engine": "inprocess"}, "all")
    again, first = values(metrics), values(run / "metrics.csv")
    names = {(stage, name) for stage, name in again if name.startswith("accuracy")}
    assert {1, 2} == {stage for stage, _ in names}
    assert {name: again[name] for name in names} == {name: first[name] for name in names}
    assert before == {path: path.read_bytes() for path in run.glob("parties/**/ledger.jsonl")}


def test_another_evaluation_lies_beside_the_first_and_leaves_the_run_alone(run: Path) -> None:
    before = (run / "metrics.csv").read_bytes()
    overrides = {"evaluation": {"classifier": "mlp"}, "engine": "inprocess"}
    metrics = evaluate_run(RunDirectory.read(run), overrides, "last")
    assert metrics.is_relative_to(run / EVALUATIONS)
    assert (2, "accuracy_P_mlp") in values(metrics)
    assert (1, "accuracy_P_mlp") not in values(metrics)
    assert (run / "metrics.csv").read_bytes() == before
    stored = sorted(metrics.parent.glob("ldpdc*/evaluation-2-*.json"))
    assert len(stored) == 2
    stored[0].write_text(stored[0].read_text().replace('"remark": ""', '"remark": "kept"'))
    evaluate_run(RunDirectory.read(run), overrides, "last")
    assert "kept" in stored[0].read_text()  # read, not computed anew


def test_a_subset_of_the_images_is_used(run: Path) -> None:
    overrides = {
        "evaluation": {"images_per_class": 1, "classifier": "mlp"},
        "method": "ldpdc",
        "engine": "inprocess",
    }
    metrics = evaluate_run(RunDirectory.read(run), overrides, "last")
    assert values(metrics)[2, "images_used"] == 10


def test_a_protocol_starts_from_its_published_settings(run: Path) -> None:
    config = other_evaluation(RunDirectory.read(run), {"evaluation": {"protocol": "D"}})
    assert (config.evaluation.protocol, config.evaluation.width) == ("D", 128)
    kept = other_evaluation(RunDirectory.read(run), {"evaluation": {"classifier": "mlp"}})
    assert kept.evaluation.width == 4


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"method": "psg"}, "unknown method of this run 'psg'"),
        ({"epsilon": 3.0}, "unknown epsilon of this run 3.0"),
        ({"spc": 3}, "spc= is not a key of an evaluation"),
        ({"evaluation": {"clasifier": "mlp"}}, "classifier"),
    ],
)
def test_what_cannot_be_evaluated_is_named(run: Path, overrides: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        evaluate_run(RunDirectory.read(run), overrides, "last")


def test_stages_are_checked(run: Path) -> None:
    with pytest.raises(UserError, match="unknown stages 'first'"):
        evaluate_run(RunDirectory.read(run), {}, "first")


def test_raw_records_are_gone_and_this_is_said(run: Path) -> None:
    overrides = {"method": "upper_bound", "engine": "inprocess"}
    with pytest.raises(UserError, match="Raw records of references"):
        evaluate_run(RunDirectory.read(run), overrides, "last")


def test_a_released_file_is_evaluated_without_its_run(run: Path, capsys) -> None:
    file = next(run.glob("releases/ldpdc*/stage-1.npz"))
    words = ["data=shapes", "protocol=P", "max_images=200", "nets=1", "classifier=mlp,lenet"]
    assert evaluate.main([str(file), *words]) == 0
    printed = capsys.readouterr().out
    assert "| P, mlp |" in printed
    assert "| P, lenet |" in printed
    assert evaluate.main([str(file)]) == 2
    assert "name the data set with data=NAME" in capsys.readouterr().err
    assert evaluate.main([str(file), "data=cifar10"]) == 2
    assert "shape" in capsys.readouterr().err
    assert evaluate.main(["classifier=mlp"]) == 2


def test_real_records_are_measured_by_the_evaluation_of_the_run(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main([str(run), "real=10,40", "engine=inprocess"]) == 0
    shown = capsys.readouterr().out
    assert "| 40 | 0 | 0." in shown
    assert "not private" in shown
    for words, message in (
        (["real=ten"], "real=ten must be whole numbers"),
        (["real=10", "protocol=D"], "evaluation= cannot be given with real="),
        (["real=10,3"], "real=3 must be a number of records from 10"),
    ):
        assert evaluate.main([str(run), *words]) == 2
        assert message in capsys.readouterr().err
