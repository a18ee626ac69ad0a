"""The result sections: best results, cards, the table and its figure."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from report_pages import Page, context, finished, report_data

from fedsynth.experiment.evaluation_data import HOLD_OUT
from fedsynth.report.elements import Cell
from fedsynth.report.rendering import render_section
from fedsynth.report.sections.results import result_section, result_table, stage_section
from fedsynth.report.summary import frame, summarise
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory


def run_with(path: Path, rows: list[Metric]) -> RunDirectory:
    run = RunDirectory.create(path)
    run.add_metrics(rows)
    return run


ROWS = [
    Metric("upper", math.inf, 0, 1, "accuracy", 0.99),
    Metric("psg", 10.0, 0, 1, "accuracy", 0.9),
    Metric("ldpdc", 10.0, 0, 1, "accuracy", 0.7),
    Metric("ldpdc", 10.0, 0, 2, "accuracy", 0.6),
    Metric("psg", 1.0, 0, 1, "accuracy", 0.8),
]


def test_the_best_private_method_of_each_epsilon_and_stage_is_marked() -> None:
    table = result_table(
        summarise(frame(ROWS)), [1, 2], replace(report_data(), setting="a setting")
    )
    best = {
        row.cells[:2]: [isinstance(cell, Cell) and cell.best for cell in row.cells[2:4]]
        for row in table.rows
    }
    assert best == {
        ("psg", "1"): [True, False],
        ("ldpdc", "10"): [False, True],
        ("psg", "10"): [True, False],
        ("upper", "∞"): [False, False],
    }
    assert table.caption.startswith("A setting. Accuracy on the test data")
    held = result_table(summarise(frame(ROWS)), [1, 2], replace(report_data(), tested=HOLD_OUT))
    assert "Accuracy on a hold-out of the training data of all classes seen, " in held.caption


def test_references_are_told_apart_in_the_table(tmp_path: Path) -> None:
    page = Page(render_section(result_section(context(run_with(tmp_path / "run", ROWS)))))
    assert [a.get("class") for a in page.all("tr")].count("reference") == 1
    assert len(page.all("strong")) == 3


def test_cards_hold_the_best_results_after_the_last_stage(tmp_path: Path) -> None:
    section = result_section(context(finished(tmp_path / "run")))
    cards = section.content["cards"]
    assert isinstance(cards, list)
    assert [(card.label, card.method) for card in cards] == [
        ("Best at ε\xa0=\xa01", "psg"),
        ("Best at ε\xa0=\xa010", "psg"),
        ("Best without privacy", "upper"),
    ]


def test_deviations_follow_their_means(tmp_path: Path) -> None:
    page = Page(render_section(result_section(context(finished(tmp_path / "run")))))
    assert "0.900 ± 0.010" in page.text


def test_what_was_not_measured_is_a_dash_and_no_error(tmp_path: Path) -> None:
    empty = context(run_with(tmp_path / "empty", []))
    assert "No metrics were recorded." in Page(render_section(result_section(empty))).text
    assert stage_section(empty) is None
    steps = context(run_with(tmp_path / "steps", [Metric("psg", 1.0, 0, 1, "steps", 5)]))
    assert "psg 1 – – – – – –" in Page(render_section(result_section(steps))).text


def test_the_matrices_are_also_a_file(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    section = stage_section(context(run))
    assert section is not None
    assert len(Page(render_section(section)).all("img")) == 1
    assert (run.path / "figures/accuracy_matrices.png").is_file()


def test_accuracy_over_budgets_is_shown_where_there_are_several(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    pictures = Page(render_section(result_section(context(run)))).all("img")
    assert ["over epsilon" in (i["alt"] or "") for i in pictures] == [True, False]
    assert "psg at epsilon 1: 90.0%. psg at epsilon 10: 90.0%. upper" in (pictures[0]["alt"] or "")
    assert (run.path / "figures/accuracy_over_budgets.png").is_file()


def test_one_stage_has_no_line_chart_and_no_matrix(tmp_path: Path) -> None:
    rows = [Metric("psg", 1.0, 0, 1, "accuracy", 0.8)]
    rows += [Metric("psg", 1.0, 0, 1, "accuracy_of_stage_1", 0.8)]
    one = context(run_with(tmp_path / "run", rows))
    page = Page(render_section(result_section(one)))
    assert page.all("img") == []
    assert "Forgetting" not in [words.strip() for words in page.words]
    assert stage_section(one) is None
    assert not (tmp_path / "run/figures").exists()
