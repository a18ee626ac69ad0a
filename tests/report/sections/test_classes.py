"""The table of single classes names the worst and the smallest class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from report_pages import Page, context, report_data

from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.report.rendering import render_section
from fedsynth.report.report_data import ReportData
from fedsynth.report.sections.classes import MAX_COLUMNS, class_section
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory


def words(path: Path, values: list[float], data: ReportData) -> str:
    run = RunDirectory.create(path)
    run.add_metrics(
        Metric("psg", 1.0, 0, 1, f"accuracy_of_class_{c}", v) for c, v in enumerate(values)
    )
    section = class_section(context(run, data))
    return "" if section is None else Page(render_section(section)).text


def test_worst_and_smallest_class(tmp_path: Path) -> None:
    info = DatasetInfo("x", (1, 8, 8), 3, (0.0,), (1.0,), class_names=("cat", "dog", "cow"))
    data = replace(report_data(), info=info, parties=(PartyInfo(0, 9, {0: 5, 1: 3, 2: 1}),))
    text = words(tmp_path / "run", [0.9, 0.25, 0.5], data)
    assert "Smallest class: cow cat dog cow psg 1 dog 0.250 0.500 0.900 0.250 0.500" in text
    assert "The smallest class has 1 training records" in text
    equal = replace(data, parties=(PartyInfo(0, 9, {0: 3, 1: 3, 2: 3}),))
    assert "mallest class" not in words(tmp_path / "equal", [0.9, 0.25, 0.5], equal)


def test_many_classes_one_class_and_none(tmp_path: Path) -> None:
    many = [0.5] * MAX_COLUMNS + [0.125]
    text = words(tmp_path / "many", many, report_data())
    assert text.endswith("Worst class Accuracy psg 1 12 0.125")
    assert "All 13 classes are in metrics.csv" in text
    assert words(tmp_path / "one", [0.5], report_data()) == ""
    assert words(tmp_path / "none", [], report_data()) == ""
