"""The command `fedsynth audit`: what it prints and writes, its exit codes, what it refuses."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from tiny_runs import ROOT

from fedsynth.cli.audit import main

QUICK = ["mechanism=vote_sums", "epsilon=4", "noise_seed=1"]


def test_claimed_audited_and_theoretical_values_stand_side_by_side(tmp_path, capsys):
    path = tmp_path / "audit.json"
    assert main([*QUICK, "runs=200", f"out={path}"]) == 0
    out = capsys.readouterr().out
    assert "unit record, relation add_remove, delta=1e-05, seen by: server" in out
    assert "Not contradicted" in out
    written = json.loads(path.read_text())
    assert written["break"] is None
    for finding in written["findings"]:
        assert finding["audited_epsilon"] <= finding["claimed_epsilon"] == 4.0
        assert finding["theoretical_epsilon"] == pytest.approx(4.0, rel=1e-3)
        assert {"runs", "confidence", "power", "view", "unit", "relation", "delta"} <= set(finding)


def test_the_exit_code_says_whether_an_error_was_found(tmp_path, capsys):
    words = [*QUICK, "runs=200", f"out={tmp_path / 'audit.json'}"]
    assert main([*words, "break=no_noise"]) == 0
    assert "deliberate error no_noise was found" in capsys.readouterr().out
    assert main([*words, "break=biased_sampling"]) == 1
    assert "NOT found" in capsys.readouterr().out


def test_one_run(tmp_path, capsys):
    words = ["mechanism=record_sum", "form=one_run", "runs=300", f"out={tmp_path / 'a.json'}"]
    assert main([*words, "epsilon=4", "noise_seed=2"]) == 0
    assert "300 canaries" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method=psg", "mechanism=votes"], "one of them"),
        ([], "name what to audit"),
        (["mechanism=vote_sum"], "Did you mean 'vote_sums'"),
        (["method=psgg"], "Did you mean 'psg'"),
        (["mechanism=vote_sums", "break=no_nois"], "Did you mean 'no_noise'"),
        (["mechanism=vote_sums", "form=three"], "one_run"),
        (["mechanism=vote_sums", "form=one_run"], "record_sum"),
        (["mechanism=record_sum", "form=one_run", "runs=2000"], "at most 1000"),
        (["mechanism=vote_sums", "psg.spc=3"], "not audited"),
        (["mechanism=vote_sums", "run=3"], "Did you mean 'runs'"),
        (["mechanism=vote_sums", "runs=3"], "at least 20"),
    ],
)
def test_a_mistake_is_one_message(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_the_guides_commands_run_and_print_what_the_guide_shows(tmp_path, capsys, monkeypatch):
    """Every command line of docs/guides/audit.md, and the verdict below it."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/guides/audit.md").read_text(encoding="utf-8")
    examples = re.findall(r"```console\n\$ fedsynth audit (.*?)\n(.*?)```", text, re.S)
    assert len(examples) >= 3
    for words, expected in examples:
        main(shlex.split(words))
        out = capsys.readouterr().out
        for line in filter(None, expected.splitlines()):
            assert line in out.splitlines(), (line, out)
