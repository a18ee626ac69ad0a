"""What was spent: of a party's lifetime, and by all jobs of a run together."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tiny_runs as tiny
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant

from fedsynth.cli.budget import main
from fedsynth.engine.base import Engine
from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.lifetime import BOOK, AdmittedJob, LifetimeBook
from fedsynth.privacy.policy import read_policy

POLICY = "data: {name: mnist}\nlifetime: {epsilon: 3}\n"


def test_a_party_reads_what_is_spent_and_left(tmp_path: Path, capsys) -> None:
    (tmp_path / "party.yaml").write_text(POLICY)
    assert main([str(tmp_path)]) == 0
    assert "spent: nothing" in capsys.readouterr().out
    book = LifetimeBook(tmp_path / BOOK, read_policy(tmp_path / "party.yaml").lifetime)
    for number in range(2):
        book.admit(AdmittedJob(str(number), f"job {number}", gaussian(6.0)))
    alone = PLDAccountant().compose(GaussianDpEvent(6.0)).get_epsilon(1e-5)
    assert main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "lifetime budget: epsilon=3 at delta=1e-05 (unit record, relation add_remove)" in out
    assert f"job 1: epsilon {alone:.4g} by its plan, 0 charged so far" in out
    assert "spent by 2 jobs" in out
    assert "for further jobs" in out


def test_the_published_comparison_is_eighteen_worlds(capsys) -> None:
    """All its jobs with noise from the same records would have cost a party 22.5."""
    assert main([str(tiny.ROOT / "results" / "split_mnist")]) == 0
    out = capsys.readouterr().out
    assert "18 jobs with noise. Each job is a world of its own" in out
    assert "party 0: epsilon 22.5" in out
    assert "Not counted: gradient_matching" in out
    assert "delta=1e-05, unit record, relation add_remove" in out


def test_an_unfinished_run_is_read_from_its_parties(here: Engine, tmp_path: Path, capsys) -> None:
    jobs = [tiny.tiny_job(name, tmp_path / "run", "together") for name in ("dp_merf", "dp_hp")]
    for job in jobs:
        tiny.release(job, here)
    assert main([str(tmp_path / "run"), "--delta", "1e-3"]) == 0
    out = capsys.readouterr().out
    assert "2 jobs with noise" in out
    assert out.count("for 2 jobs") == 3
    shutil.rmtree(tmp_path / "run" / "parties")
    assert main([str(tmp_path / "run")]) == 2
    assert "nothing was released" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["gone"], [".", "--delta", "2"]])
def test_a_mistake_is_one_message(words: list[str], tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("error: ")
