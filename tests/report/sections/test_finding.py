"""The first section: the finding, failed jobs, date and version."""

from __future__ import annotations

import math
from pathlib import Path

from report_pages import Page, context, finished

from fedsynth import __version__
from fedsynth.experiment.real_records import METHOD, real_records_file
from fedsynth.report.page import write_report
from fedsynth.report.rendering import render_section
from fedsynth.report.sections.finding import finding_section
from fedsynth.storage.metrics import Metric, MetricsFile
from fedsynth.storage.run_directory import FAILED, LOG, RunDirectory


def words(run: RunDirectory) -> str:
    return Page(render_section(finding_section(context(run)))).text


def test_the_finding_comes_first(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    page = write_report(run, context(run).data).read_text()
    assert page.index('id="finding"') < page.index('id="results"')
    text = words(run)
    assert text.startswith("Finding Parties that release 12 images in all at ε = 1 let")
    assert "Without any privacy, upper reaches 90.0%" in text
    assert "Setting class-incremental" in text


def test_date_and_version_are_those_of_the_run(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    assert f"fedsynth {__version__}" in words(run)
    run.write_text(LOG, "2031-02-03T04:05:06+00:00 started\n2031-02-04T00:00:00+00:00 more\n")
    assert "Run started on 2031-02-03, fedsynth" in words(run)
    run.write_text(LOG, "")
    assert "Run started" not in words(run)


def test_the_worth_in_real_records_is_said_where_it_was_measured(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    assert "is worth" not in words(run)
    (run.path / "evaluations").mkdir()
    curve = {10: 0.01, 100: 0.02}
    MetricsFile(real_records_file(run)).add(
        Metric(METHOD, math.inf, 0, 1, f"accuracy_with_{count}", value)
        for count, value in curve.items()
    )
    assert "the best private release is worth at least 100 real records at ε = 1 " in words(run)


def test_jobs_that_failed_are_named(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    assert "Not complete" not in words(run)
    for name in [f"ldpdc-eps{e}-seed0" for e in range(1, 9)]:
        run.write_text(f"server/{name}/{FAILED}", "{}")
    text = words(run)
    assert "Not complete: eight jobs failed (ldpdc-eps1-seed0, " in text
    assert "ldpdc-eps6-seed0 and 2 more)" in text
    assert "ldpdc-eps7-seed0" not in text
