"""The privacy section: spending of few and many parties, terms of the guarantee, references."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from report_pages import Page, context, report_data

from fedsynth.cli.plan_table import plan_table
from fedsynth.core.text import epsilon_text
from fedsynth.experiment.config import resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.job import Job
from fedsynth.privacy.stored_audits import stored_audits
from fedsynth.report.elements import Row, Table
from fedsynth.report.rendering import render_section
from fedsynth.report.report_data import ReportData, build_report_data, privacy_rows
from fedsynth.report.sections.privacy import MAX_ROWS, Spending, privacy_section
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run without any number."""
    return RunDirectory.create(tmp_path / "run")


def planned(parties: int, **keys: object) -> tuple[ReportData, list[Job]]:
    """Report data and jobs of a GS-WGAN run that is only planned."""
    keys = {"data": "shapes", "partition": "iid", "parties": parties, "epsilon": [3], **keys}
    keys = {"scenario": "iid_parties", "preset": "smoke", "method": ["gs_wgan"], **keys}
    config = resolve({**keys, "accounting": "rdp"})
    experiment = Experiment.of(config, "nowhere")
    return build_report_data(experiment, "", []), list(experiment.jobs)


def spending(run: RunDirectory, data: ReportData) -> list[Spending]:
    tables = privacy_section(context(run, data)).content["spending"]
    assert isinstance(tables, list)
    return tables


def rows_of(run: RunDirectory, data: ReportData) -> list[Row]:
    (only,) = spending(run, data)
    return list(only.table.rows)


def test_equal_parties_of_a_thousand_share_a_line(run: RunDirectory) -> None:
    keys = {"users_per_round": 10, "gs_wgan": {"subsets": 1, "steps": 130}}
    data, jobs = planned(1000, **keys)
    rows = privacy_rows(jobs)
    lines = [row.cells for row in rows_of(run, data)]
    assert len(lines) == len({(r.view, r.steps, r.epsilon_pld) for r in rows}) < 10
    server = [cells for cells in lines if cells[2] == "server"]
    assert [cells[0] for cells in server] == ["0-299", "300-999"]
    assert [cells[5] for cells in server] == ["2", "1"]
    table = plan_table(jobs, "")
    assert list(table.columns[3].cells).count("0-299") == 2
    assert table.row_count == 4


def test_few_parties_have_a_line_each(run: RunDirectory) -> None:
    data, _ = planned(3, gs_wgan={"subsets": 3, "steps": 3, "per_round": 1})
    lines = [row.cells for row in rows_of(run, data) if row.cells[2] == "server"]
    assert [cells[0] for cells in lines] == ["0", "1", "2"]


def test_a_long_table_is_cut_and_its_caption_counts_all_lines(run: RunDirectory) -> None:
    row = report_data().privacy[0]
    rows = tuple(dataclasses.replace(row, stage=stage) for stage in range(1, MAX_ROWS + 51))
    (only,) = spending(run, dataclasses.replace(report_data(), privacy=rows))
    assert len(only.table.rows) == MAX_ROWS
    assert f"the first {MAX_ROWS} of {MAX_ROWS + 50} lines" in only.table.caption


def test_references_are_those_listed_and_those_measured(run: RunDirectory) -> None:
    run.add_metrics([Metric("measured", math.inf, 0, 1, "accuracy", 0.9)])
    text = Page(render_section(privacy_section(context(run)))).text
    assert "Not private (ε = ∞): measured, upper are references made from raw data" in text


def test_the_summary_names_the_largest_spending(run: RunDirectory) -> None:
    first, *others = report_data().privacy
    later = dataclasses.replace(first, stage=2, epsilon_pld=9.95)
    data = dataclasses.replace(report_data(), privacy=(first, *others, later))
    (only,) = spending(run, data)
    assert only.summary == "psg, budget ε = 10: 1 party, at most ε = 9.95 spent"


def test_audits_of_the_code_stand_beside_the_spending_and_say_what_they_are(
    run: RunDirectory,
) -> None:
    data, _ = planned(3, gs_wgan={"subsets": 3, "steps": 3, "per_round": 1})
    section = privacy_section(context(run, data))
    table = section.content["audits"]
    assert isinstance(table, Table)
    audits = stored_audits().of_method("gs_wgan")
    assert len(table.rows) == len(audits) > 0
    for row, audit in zip(table.rows, audits, strict=True):
        claimed, audited, theoretical = row.cells[5:8]
        assert claimed == epsilon_text(audit.claimed_epsilon)
        assert audited == epsilon_text(audit.audited_epsilon)
        assert theoretical == epsilon_text(audit.theoretical_epsilon)
    assert "not on this release" in str(render_section(section))
    bare = privacy_section(context(run, dataclasses.replace(data, privacy=[])))
    assert bare.content["audits"] is None
