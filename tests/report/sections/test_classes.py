"""The table of single classes names the worst and the smallest class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from report_pages import Page, context, report_data

from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.evaluation.types import EvalResult
from fedsynth.experiment.evaluation_data import HOLD_OUT
from fedsynth.report.rendering import render_section
from fedsynth.report.report_data import ReportData
from fedsynth.report.sections.classes import MAX_COLUMNS, class_section
from fedsynth.storage.metrics import Metric
from fedsynth.storage.releases import release_name
from fedsynth.storage.run_directory import RunDirectory, evaluation_file


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
    assert "The smallest class has 1 training record" in text
    equal = replace(data, parties=(PartyInfo(0, 9, {0: 3, 1: 3, 2: 3}),))
    assert "mallest class" not in words(tmp_path / "equal", [0.9, 0.25, 0.5], equal)


def test_many_classes_one_class_and_none(tmp_path: Path) -> None:
    many = [0.5] * MAX_COLUMNS + [0.125]
    text = words(tmp_path / "many", many, report_data())
    assert text.endswith("Worst class Accuracy psg 1 12 0.125")
    assert "All 13 classes are in metrics.csv" in text
    assert words(tmp_path / "one", [0.5], report_data()) == ""
    assert words(tmp_path / "none", [], report_data()) == ""


def test_what_is_taken_for_what_has_the_names_of_classes(tmp_path: Path) -> None:
    info = DatasetInfo("x", (1, 8, 8), 2, (0.0,), (1.0,), class_names=("cat", "dog"))
    run = RunDirectory.create(tmp_path / "run")
    values = {"accuracy": 0.75, "accuracy_of_class_0": 0.5, "accuracy_of_class_1": 1.0}
    run.add_metrics(Metric("psg", 1.0, 0, 1, k, v) for k, v in values.items())
    result = EvalResult({0: (2, 4), 1: (4, 4)}, "P", "mlp", 1, 1.0, 1, 1, mistakes={0: {1: 2}})
    run.write_text(evaluation_file(release_name("psg", 1.0, 0), 1, 0), result.to_json())
    section = class_section(context(run, replace(report_data(), info=info)))
    assert section is not None
    page = Page(render_section(section))
    assert "psg 1 cat taken for dog (50%)" in page.text
    assert "Accuracy on the test records" in page.text
    held = class_section(context(run, replace(report_data(), info=info, tested=HOLD_OUT)))
    assert held is not None
    text = Page(render_section(held)).text
    assert "Accuracy on the held-out records of single classes" in text
    assert "share of the held-out records of the true class" in text
    assert "Confusion matrices" in (page.all("img")[0]["alt"] or "")
    assert (run.path / "figures" / "confusions.svg").is_file()
