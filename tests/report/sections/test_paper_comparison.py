"""The section of published results, which also writes `comparison.md`."""

from __future__ import annotations

import math
from pathlib import Path

from report_pages import Page, compared_run, context

from fedsynth.report.rendering import render_section
from fedsynth.report.sections.paper_comparison import comparison_section


def test_the_section_has_the_table_and_the_run_its_markdown(tmp_path: Path) -> None:
    run = compared_run(
        tmp_path / "run",
        {
            ("psg", 10.0): {"accuracy": 0.93, "accuracy_P_convnet": 0.93},
            ("upper_bound", math.inf): {"accuracy": 0.99, "accuracy_P_convnet": 0.99},
        },
    )
    section = comparison_section(context(run))
    assert section is not None
    page = Page(render_section(section))
    assert "Chen et al. 2022 (PSG), table 1a: PSG, 20 per class" in page.text
    text = (run.path / "comparison.md").read_text()
    assert "| psg | 10 | convnet, protocol P | 0.940 ± 0.014 | 0.949 |" in text
    assert "| upper_bound (not private) | ∞ |" in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_a_run_without_published_counterpart_has_no_section(tmp_path: Path) -> None:
    values = {("psg", 10.0): {"accuracy_P_convnet": 0.9}}
    run = compared_run(tmp_path / "run", values, data="shapes")
    assert comparison_section(context(run)) is None
    assert not (run.path / "comparison.md").exists()
