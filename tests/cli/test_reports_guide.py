"""The guide to reports: its commands run one after another, and write what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from guides import blocks, commands

GUIDE = "docs/guides/reports.md"


@pytest.mark.timeout(300)
def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    runs, paper, board, worth, index = blocks(GUIDE, "bash")
    commands(runs + paper + board, tmp_path)
    folder = tmp_path / "runs" / "first" / "report"
    assert r"\toprule" in (folder / "tables" / "results.tex").read_text()
    assert (folder / "figures" / "accuracy_over_budgets.pdf").read_bytes().startswith(b"%PDF")
    assert r"\input{tables/results}" in (folder / "paper.tex").read_text()
    assert "| ldpdc | 10 |" in (folder / "report.md").read_text()
    printed = commands(worth + index, tmp_path)
    assert "| 400 | 0 | 0." in printed
    assert "Worth in real records" in (folder / "report.html").read_text()
    page = (tmp_path / "runs" / "index.html").read_text()
    assert "second differs from first in" in page
    assert "neighbours (replace one, not add or remove one)" in page
    assert "ours is ε = " in page
