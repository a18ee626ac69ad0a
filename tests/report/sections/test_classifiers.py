"""The section of classifiers and image quality is there if either was measured."""

from __future__ import annotations

from pathlib import Path

from report_pages import Page, classifier_metrics, context

from fedsynth.evaluation.classical_classifiers import SUITE
from fedsynth.report.rendering import render_section
from fedsynth.report.sections.classifiers import classifier_section
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory


def test_each_measured_table_is_shown(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.add_metrics([Metric("psg", 1.0, 0, 1, "accuracy", 0.9)])
    assert classifier_section(context(run)) is None
    run.add_metrics(classifier_metrics(SUITE))
    run.add_metrics([Metric("psg", 10.0, 0, 2, "inception_score", 3.25)])
    section = classifier_section(context(run))
    assert section is not None
    page = Page(render_section(section))
    assert len(page.all("table")) == 2
    assert "3.250" in page.text
    references = [a for a in page.all("tr") if a.get("class") == "reference"]
    assert len(references) == 2  # upper_bound and the real data
