"""Our numbers beside the papers': read from a run, put into report, Markdown and terminal."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from report_pages import COMPARED_CONFIG, compared_run
from tiny_runs import ROOT

from fedsynth.cli.run import main as run_main
from fedsynth.report.paper_comparison.matching import ALONE
from fedsynth.report.paper_comparison.table import (
    compare_run,
    departures,
    describe_parties,
    main,
    measured_numbers,
)
from fedsynth.storage.run_directory import RunDirectory


def test_a_published_setting_stands_beside_its_number_with_nothing_to_say(tmp_path: Path) -> None:
    run = compared_run(
        tmp_path / "run", {("psg", 10.0): {"accuracy_P_convnet": 0.93, "images": 100}}
    )
    pairs = compare_run(run)
    assert [p.differs for p in pairs] == [()] * len(pairs)
    assert {(p.paper.spc, p.paper.value) for p in pairs} == {(20, 0.956)}
    assert pairs[0].ours.value == pytest.approx(0.94)
    assert pairs[0].ours.deviation == pytest.approx(0.02 / math.sqrt(2))
    assert departures(run.read_config()) == []


def test_protocol_g_compares_the_average_and_every_classifier(tmp_path: Path) -> None:
    metrics = {
        "accuracy": 0.5,
        "classifiers": 2,
        "accuracy_G_lda": 0.6,
        "accuracy_G_gbm": 0.4,
        "real_G_lda": 0.8,
        "real_G_gbm": 0.9,
        "calibrated_accuracy": 0.6,
    }
    run = compared_run(tmp_path / "run", {("gs_wgan", 10.0): metrics})
    exact = {(p.ours.classifier, p.ours.metric): p for p in compare_run(run) if not p.differs}
    assert exact["average", "accuracy"].paper.value == 0.6
    assert exact["average", "calibrated_accuracy"].paper.value == 0.69
    assert exact["lda", "accuracy"].paper.value == 0.78
    assert exact["gbm", "calibrated_accuracy"].paper.value == 0.43
    assert exact["lda", "calibrated_accuracy"].ours.value == pytest.approx(
        (0.6 / 0.8 + 0.62 / 0.82) / 2
    )
    assert all("329 to 370" in pair.paper.flag for pair in exact.values())


def test_protocol_l_compares_best_with_best_and_says_so_of_the_last(tmp_path: Path) -> None:
    both = {"accuracy_L_keras_cnn": 0.6, "accuracy_optimistic_max": 0.65}
    (best, *_) = compare_run(compared_run(tmp_path / "both", {("datalens", 1.0): both}))
    assert (best.ours.metric, best.differs) == ("accuracy_optimistic_max", ())
    assert best.paper.value == 0.7123
    last = compared_run(tmp_path / "last", {("datalens", 1.0): {"accuracy_L_keras_cnn": 0.6}})
    assert compare_run(last)[0].differs == ("epoch (last epoch, best epoch on test data)",)


def test_other_parties_budgets_and_protocols_are_named(tmp_path: Path) -> None:
    run = compared_run(
        tmp_path / "run",
        {("ldpdc", 10.0): {"accuracy_P_convnet": 0.8}},
        parties=5,
        stages="in_turn",
    )
    for pair in compare_run(run):
        assert pair.differs[0].startswith("epsilon (10, 1")
        assert pair.differs[1:] == ("protocol (P, D)", f"parties (5 parties in turn, {ALONE})")
    assert describe_parties({"parties": 3, "stages": "together"}) == "3 parties together"


def test_departures_are_told() -> None:
    told = " ".join(
        departures(
            {
                **COMPARED_CONFIG,
                "accounting": "pld",
                "holdout": 5000,
                "evaluation": {
                    "width": 32,
                    "max_images": 10000,
                    "quality": True,
                    "scorer_width": 16,
                },
                "psg": {"spc": 10, "width": 32, "runs": None, "outer": None},
                "no_such_method": {"width": 3},
            }
        )
    )
    for words in (
        "ConvNet of width 32, at most 10,000 image passes per training",
        "VGG11-BN of width 16",
        "hold-out",
        "calibrated by PLD",
        "psg: width=32 instead of the published settings",
    ):
        assert words in told
    assert "runs=" not in told  # as published


def test_nothing_to_compare_is_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = compared_run(
        tmp_path / "run", {("psg", 10.0): {"accuracy_P_convnet": 0.9}}, data="shapes"
    )
    assert main([str(run.path)]) == 0
    assert "No published numbers for this data" in capsys.readouterr().out
    assert measured_numbers([], {}) == []


@pytest.mark.parametrize("words", [["no/such/run"], []])
def test_mistakes_end_in_a_message(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert "does not exist" in said.err or "name at least one run directory" in said.err


def test_several_runs_are_told_apart_and_one_without_numbers_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(ROOT / "results" / name) for name in ("split_mnist", "benchmark")]
    assert main(runs) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line[:2] == "# "] == [
        f"# {run}" for run in runs
    ]
    empty = RunDirectory.create(tmp_path / "run")
    empty.write_config({"data": "mnist"})
    assert main([str(empty.path)]) == 2
    assert "has no numbers yet" in capsys.readouterr().err
    assert main(["-h"]) == 0


def test_runs_from_before_classifiers_had_lines_of_their_own(tmp_path: Path) -> None:
    """The first results of this project can still be compared."""
    kept = ROOT / "results" / "split_mnist" / "float_noise"
    for name in ("metrics.csv", "config.yaml"):
        (tmp_path / name).write_bytes((kept / name).read_bytes())
    pairs = compare_run(RunDirectory.open(tmp_path))
    assert {p.ours.method for p in pairs} >= {"psg", "ldpdc", "dp_sgd", "upper_bound"}
    judged = {p.ours.method: p.ours.protocol for p in pairs}
    assert (judged["psg"], judged["dp_sgd"]) == ("P", "none")  # a released model


def test_a_fresh_run_gets_its_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command to the page. The data are made up, so the run is given another's name."""
    out = tmp_path / "run"
    words = ["data=shapes", "parties=1", "options=", "holdout=1600", "engine=inprocess"]
    words += ["noise_seed=3", "delta=1e-3", "method=ldpdc", "epsilon=1", "ldpdc.spc=2"]
    words += ["evaluation.width=4", "evaluation.nets=1", "evaluation.max_images=50"]
    assert run_main([*words, f"out={out}", "--quiet"]) == 0
    config = out / "config.yaml"
    config.write_text(config.read_text().replace("data: shapes", "data: mnist"))
    capsys.readouterr()
    assert main([str(out)]) == 0
    table = capsys.readouterr().out
    assert "| ldpdc | 1 | convnet, protocol P |" in table
    assert "protocol (P, D)" in table
    assert "0.858" in table
