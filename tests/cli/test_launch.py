"""A run as the command starts and resumes it: what it prints, and jobs that fail."""

from __future__ import annotations

import csv
import re

from tiny_runs import TINY

from fedsynth.cli.run import main
from fedsynth.experiment import server_session


def test_quiet_prints_the_result_and_nothing_else(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*TINY, "method=ldpdc", "epsilon=10"]
    assert main([*words, "out=a", "--quiet"]) == 0
    quiet = capsys.readouterr()
    assert main([*words, "out=b"]) == 0
    told = capsys.readouterr()
    assert re.search(r"ldpdc\s+10\s", quiet.out)
    assert quiet.out.rstrip().endswith("report: a/report.html")
    assert "stage" in told.out
    caption = "accuracy after each stage on a hold-out of the training data; "
    assert all(caption in " ".join(text.split()) for text in (quiet.out, told.out))
    assert len(told.out.splitlines()) > len(quiet.out.splitlines())
    assert quiet.err.count("\n") == 1
    assert quiet.err.startswith("note: noise_seed=3")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_a_job_that_fails_is_in_the_report_and_in_the_exit_code(capsys, tmp_path, monkeypatch):
    """The other job is done; --resume takes up the one that failed."""
    out, real = tmp_path / "run", server_session.serve_job

    def fail(job: str, *arguments: object) -> None:
        if '"method": "ldpdc"' in job:
            raise ValueError("no luck")
        real(job, *arguments)

    words = ["data=shapes", "parties=2", "holdout=1600", "method=psg,ldpdc", "epsilon=10"]
    words += ["preset=smoke", "psg.width=4", "psg.spc=2", "psg.runs=2", "ldpdc.spc=2"]
    words += ["evaluation.width=4", "evaluation.nets=1", "evaluation.max_images=50"]
    with monkeypatch.context() as patch:
        patch.setattr(server_session, "serve_job", fail)
        assert main([*words, "engine=inprocess", f"out={out}", "--quiet"]) == 1
    error = capsys.readouterr().err
    assert "1 of 2 jobs failed: ldpdc-eps10-seed0." in error
    assert f"--resume {out}" in error
    assert "ldpdc-eps10-seed0 failed: ValueError: no luck" in (out / "report.html").read_text()
    assert main([f"out={out}", *words]) == 2
    assert "holds an unfinished run" in capsys.readouterr().err
    assert main(["--resume", str(out), "engine=inprocess", "--quiet"]) == 0
    assert "no luck" not in (out / "report.html").read_text()
    methods = {row["method"] for row in csv.DictReader((out / "metrics.csv").open())}
    assert methods == {"psg", "ldpdc"}
