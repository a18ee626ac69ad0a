"""A run directory as an object, finished and unfinished."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsynth.api.run_result import RunResult
from fedsynth.core.errors import UserError
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory


@pytest.fixture
def started(tmp_path: Path) -> RunResult:
    """A run that has numbers and no report."""
    run = RunDirectory.create(tmp_path / "a<b>")
    run.write_config({"method": ["psg"], "data": "shapes", "resize": None})
    run.add_metrics([Metric("psg", 1.0, 0, 1, "accuracy", 0.5, "record", "add_remove", 1e-5)])
    return RunResult(run.path)


def test_numbers_are_there_before_the_end_and_the_rest_is_not(started: RunResult) -> None:
    assert not started.finished
    assert started.metrics["value"].tolist() == [0.5]
    for name in ("report", "ledger"):
        with pytest.raises(UserError, match="Go on with fedsynth"):
            getattr(started, name)
    assert len(started.releases) == 0
    with pytest.raises(UserError, match="nothing was released"):
        started.releases["psg"]


def test_a_notebook_shows_the_accuracy_and_escapes_names(started: RunResult) -> None:
    page = started._repr_html_()
    assert "0.500" in page
    assert "(unfinished)" in page
    assert "a&lt;b&gt;" in page
    assert "a<b>" not in page


def test_a_finished_run_has_report_and_ledger(started: RunResult) -> None:
    RunDirectory(started.path).write_text("report.html", "x")
    RunDirectory(started.path).write_text("ledger.jsonl", "")
    assert started.finished
    assert started.report.read_text() == "x"
    assert started.ledger == []


def test_other_folders_are_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run directory"):
        RunResult(tmp_path)
