"""The section of the likeness of tables names columns and marks references."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from report_pages import Page, context, finished, report_data

from fedsynth.core.types import Column
from fedsynth.data.tables import table_info
from fedsynth.experiment.evaluation_data import HOLD_OUT
from fedsynth.report.elements import Table
from fedsynth.report.rendering import render_section
from fedsynth.report.sections.table_quality import MAX_COLUMNS, table_quality_section
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory


def run_with(path: Path, shapes: list[float]) -> RunDirectory:
    run = RunDirectory.create(path)
    for method, epsilon in (("ldpdc", 1.0), ("upper_bound", math.inf)):
        rows = {f"shape_of_column_{i}": s for i, s in enumerate(shapes, start=1)}
        rows |= {"column_shapes": sum(shapes) / len(shapes)}
        if len(shapes) > 1:
            rows["pair_trends"] = 0.625
        run.add_metrics(Metric(method, epsilon, 0, 1, k, v) for k, v in rows.items())
    return run


def test_columns_have_their_names(tmp_path: Path) -> None:
    info = table_info("x", [Column("age"), Column("ward", categories=("a", "b"))], 2)
    data = replace(report_data(), info=info)
    section = table_quality_section(context(run_with(tmp_path / "run", [0.5, 0.25, 1.0]), data))
    assert section is not None
    page = Page(render_section(section))
    assert "ldpdc 1 0.583 0.625 ward 0.500 0.250 1.000" in page.text
    assert "age ward class" in page.text
    assert [row.get("class") for row in page.all("tr")].count("reference") == 1


def test_wide_tables_name_the_worst_column_only(tmp_path: Path) -> None:
    info = table_info("x", [Column(f"c{i}") for i in range(MAX_COLUMNS)], 2)
    shapes = [0.9] * MAX_COLUMNS + [0.1]
    made = run_with(tmp_path / "run", shapes)
    section = table_quality_section(context(made, replace(report_data(), info=info)))
    assert section is not None
    table = section.content["table"]
    assert isinstance(table, Table)
    assert [row.cells[4:] for row in table.rows] == [("class",), ("class",)]
    assert "rows to the test records, by" in table.caption


def test_rows_are_compared_with_the_records_of_the_evaluation(tmp_path: Path) -> None:
    held = replace(report_data(), info=table_info("x", [Column("age")], 2), tested=HOLD_OUT)
    section = table_quality_section(context(run_with(tmp_path / "run", [0.5, 0.25]), held))
    assert section is not None
    assert "rows to the held-out records, by" in Page(render_section(section)).text


def test_images_have_no_such_section(tmp_path: Path) -> None:
    assert table_quality_section(context(finished(tmp_path / "run"))) is None
