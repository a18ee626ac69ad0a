"""Methods, command, environment and files: all that is needed to repeat a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from report_pages import Page, context, finished, report_data

from fedsynth.report.rendering import render_section
from fedsynth.report.sections.environment import environment_section, method_section
from fedsynth.storage.run_directory import RunDirectory


def test_the_recorded_command_stands_in_for_a_missing_one(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    data = replace(report_data(), command="")
    page = Page(render_section(environment_section(context(run, data))))
    assert str(run.read_environment()["command"]) in page.text
    assert torch.__version__ in page.text


def test_a_run_without_a_recorded_environment_still_lists_its_files(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    page = Page(render_section(environment_section(context(run))))
    assert "ledger.jsonl" in page.text
    assert page.all("details") == []


def test_references_are_told_apart_among_the_methods(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    section = method_section(context(run))
    assert section is not None
    page = Page(render_section(section))
    assert [attrs.get("class") for attrs in page.all("tr")] == [None, None, "reference"]
    assert method_section(context(run, replace(report_data(), methods=()))) is None
