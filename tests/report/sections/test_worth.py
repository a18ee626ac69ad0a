"""The section of what releases are worth in real records."""

from __future__ import annotations

import math
from pathlib import Path

from report_pages import Page, context, finished

from fedsynth.experiment.real_records import METHOD, real_records_file
from fedsynth.report.rendering import render_section
from fedsynth.report.sections.worth import worth_section
from fedsynth.storage.metrics import Metric, MetricsFile


def test_every_result_has_its_worth_once_it_was_measured(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    assert worth_section(context(run)) is None
    (run.path / "evaluations").mkdir()
    MetricsFile(real_records_file(run)).add(
        Metric(METHOD, math.inf, 0, 3, f"accuracy_with_{n}", v) for n, v in ((10, 0.8), (1000, 1.0))
    )
    section = worth_section(context(run))
    assert section is not None
    page = Page(render_section(section))
    assert "psg 1 0.900 about 100 psg 10 0.900 about 100 upper ∞ 0.900 about 100" in page.text
    assert "a reference that is not private" in page.text
    assert "1,000 1.000" in page.text
    assert [row.get("class") for row in page.all("tr")].count("reference") == 3
