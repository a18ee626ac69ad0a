"""The plan table: rows of parties and views, and the planned cost in its caption."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console
from tiny_runs import tiny_job

from fedsynth.cli.plan_table import COLUMNS, plan_of_width, plan_table
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment import cost_model
from fedsynth.experiment.job import Job


@pytest.fixture(autouse=True)
def known_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release takes a second, a classifier 100, a scorer seven."""
    monkeypatch.setattr(cost_model, "work_seconds", lambda *_: 1.0)
    monkeypatch.setattr(cost_model, "classifier_seconds", lambda *_: 100.0)
    monkeypatch.setattr(cost_model, "scorer_training_seconds", lambda *_: 7.0)
    monkeypatch.setattr(cost_model, "quality_seconds", lambda *_: 0.0)


def table_text(jobs: list[Job]) -> str:
    """The printed table."""
    console = Console(width=500, file=io.StringIO())
    console.print(plan_table(jobs, "t"))
    return console.file.getvalue()


def test_one_row_per_party_and_view(tmp_path) -> None:
    """The noise of a joint method in shares is seen by two kinds of server."""
    job = tiny_job("dp_merf_joint", tmp_path, "together", changes={"noise_at": "distributed"})
    text = table_text([job])
    parties = len(job.plan(0).parties)
    assert [name for name in COLUMNS if name not in text] == []
    for words in ("server that sees sums", "server with 1 colluding party"):
        assert text.count(words) == parties
    assert "curator" not in text


def test_many_equal_parties_share_a_row(tmp_path) -> None:
    job = tiny_job("ldpdc", tmp_path, "together")
    scenario = dataclasses.replace(job.scenario, parties=40, partition="iid", options=None)
    text = table_text([dataclasses.replace(job, scenario=scenario)])
    assert text.count("│ ldpdc ") < 10


def test_fifty_columns_have_every_value_and_cut_none(tmp_path) -> None:
    """The table does not fit: its rows are lines below each other."""
    job = tiny_job("ldpdc", tmp_path)
    console = Console(width=50, file=io.StringIO())
    console.print(plan_of_width([job], "a [red]title", 50))
    text = console.file.getvalue()
    assert "a [red]title" in text
    assert "…" not in text
    assert "│" not in text
    assert max(map(len, text.splitlines())) <= 50
    (share,) = job.plan(0).parties
    for words in (
        "ldpdc  ε 10  stage 1  party 0",
        f"{share.records} records, {share.steps} steps, q {share.sampling_rate:.5f}, noise",
        f"server: ε PLD {job.epsilon(share.event, 'pld'):.4g}, RDP ",
        "time 1.0 s",
    ):
        assert words in text
    wide = Console(width=500, file=io.StringIO())
    wide.print(plan_of_width([job], "t", 500))
    assert wide.file.getvalue() == table_text([job])


def test_the_caption_adds_up_releases_evaluation_and_baselines(tmp_path) -> None:
    calibrated = EvaluationConfig("G", classifier=("lda",))
    job = dataclasses.replace(tiny_job("ldpdc", tmp_path), evaluation=calibrated)
    caption = str(plan_table([job], "t").caption)
    assert "evaluation 3 min" in caption  # 100 seconds for each of two stages
    assert "on real data, once and then kept on disk, 3 min" in caption  # and seven of the scorer
