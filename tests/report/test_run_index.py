"""An index puts runs side by side and says in what they differ."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from report_pages import Page

from fedsynth.core.errors import UserError
from fedsynth.report.elements import Table
from fedsynth.report.rendering import render_page
from fedsynth.report.run_index import SIDE_BY_SIDE, differences, index_sections, runs_below
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory


def put_run(path: Path, accuracies: dict[tuple[str, float], list[float]], **config: Any) -> None:
    """A run with these accuracies by seed."""
    run = RunDirectory.create(path)
    settings = {"data": "mnist", "parties": 5, "unit": "record", "relation": "add_remove"}
    settings = {**settings, "delta": 1e-5, **config}
    run.write_config(settings)
    meaning = settings["unit"], settings["relation"], settings["delta"], "server"
    for (method, epsilon), values in accuracies.items():
        for seed, value in enumerate(values):
            rows = {"accuracy": value, "epsilon_pld": epsilon}
            run.add_metrics(
                Metric(method, epsilon, seed, 1, k, v, *meaning) for k, v in rows.items()
            )


def cells(table: Any) -> list[list[str]]:
    assert isinstance(table, Table)
    return [[str(cell) for cell in row.cells] for row in table.rows]


def test_runs_stand_side_by_side(tmp_path: Path) -> None:
    put_run(tmp_path / "a", {("psg", 1.0): [0.8, 0.82], ("upper", math.inf): [0.97, 0.97]})
    put_run(tmp_path / "deep" / "b", {("psg", 1.0): [0.7], ("ldpdc", 1.0): [0.6]})
    (tmp_path / "deep" / "b" / "report.html").write_text("x")
    runs = runs_below(tmp_path)
    assert [run.name for run in runs] == ["a", "deep/b"]
    results, settings = index_sections(runs, "../")
    assert cells(results.content["table"]) == [
        ["ldpdc", "1", "–", "0.600"],
        ["psg", "1", "0.810 0.683–0.937", "0.700"],
        ["upper", "∞", "0.970 0.970–0.970", "–"],
    ]
    assert results.content["differences"] == []
    page = Page(render_page("Runs", {"Runs": "2"}, [results, settings]))
    assert "data mnist mnist" in page.text
    assert "report – report" in page.text  # a has none
    links = [link["href"] for link in page.all("a")]
    assert links == ["#runs", "#settings", "../deep/b/report.html"]


def test_what_differs_is_said(tmp_path: Path) -> None:
    put_run(tmp_path / "a", {("psg", 1.0): [0.8]})
    put_run(tmp_path / "b", {("psg", 1.0): [0.8]}, unit="user", delta=1e-6, data="emnist")
    put_run(tmp_path / "c", {("psg", 1.0): [0.8]}, relation="replace_one")
    lines = differences(runs_below(tmp_path))
    assert lines[0] == (
        "b differs from a in data (emnist, not mnist), unit (user, not record), "
        "δ (1e-06, not 1e-05)."
    )
    assert lines[1].startswith("b, psg, ε = 1: differs from the first run in unit (user, record)")
    assert lines[2] == ("c differs from a in neighbours (replace one, not add or remove one).")
    assert "not converted, as there is no ledger" in lines[3]
    caption = index_sections(runs_below(tmp_path))[0].content["table"].caption  # type: ignore[attr-defined]
    assert "differ in more than their results" in caption


def caption(folder: Path) -> str:
    return index_sections(runs_below(folder))[0].content["table"].caption  # type: ignore[attr-defined, no-any-return]


def test_the_caption_names_what_each_run_was_tested_on(tmp_path: Path) -> None:
    end = " after the last stage, mean over seeds, with the 95% interval"
    put_run(tmp_path / "a", {("psg", 1.0): [0.8]}, holdout=5000)
    assert caption(tmp_path) == f"Accuracy on a hold-out of the training data{end}"
    put_run(tmp_path / "b", {("psg", 1.0): [0.8]}, holdout=0.0)
    put_run(tmp_path / "c", {("psg", 1.0): [0.8]}, holdout=0.1)
    named = "a hold-out of the training data (a, c) or the test data (b)"
    assert caption(tmp_path).startswith(f"Accuracy on {named}{end}. The runs differ")
    (tmp_path / "d").mkdir()
    put_run(tmp_path / "d" / "e", {("psg", 1.0): [0.8]})
    assert caption(tmp_path / "d") == f"Accuracy on the test data{end}"


def test_of_many_runs_each_line_names_what_it_was_tested_on(tmp_path: Path) -> None:
    for number in range(SIDE_BY_SIDE + 1):
        put_run(tmp_path / f"r{number}", {("psg", 1.0): [0.5]}, holdout=500)
    assert caption(tmp_path).startswith("Accuracy on a hold-out of the training data after")
    put_run(tmp_path / "another", {("ldpdc", 1.0): [0.5]})
    table = index_sections(runs_below(tmp_path))[0].content["table"]
    lines = [(line[0], line[-1]) for line in cells(table)]
    assert lines[0] == ("another", "the test data")
    assert lines[-1] == (f"r{SIDE_BY_SIDE}", "a hold-out of the training data")
    assert "test data" not in caption(tmp_path)


def test_many_runs_stand_below_each_other(tmp_path: Path) -> None:
    for number in range(SIDE_BY_SIDE + 1):
        put_run(tmp_path / f"r{number}", {("psg", 1.0): [number / 10]})
    table = index_sections(runs_below(tmp_path))[0].content["table"]
    assert cells(table)[3] == ["r3", "psg", "1", "0.300"]
    (tmp_path / "r1" / "report.html").write_text("x")
    settings = index_sections(runs_below(tmp_path))[1]
    page = Page(render_page("Runs", {}, [settings]))
    assert [link["href"] for link in page.all("a")] == ["#settings", "r1/report.html"]
    assert [line[:2] for line in cells(settings.content["table"])][:2] == [
        ["r0", "mnist"], ["r1", "mnist"]
    ]  # fmt: skip


def test_a_folder_without_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run and holds none"):
        runs_below(tmp_path)
