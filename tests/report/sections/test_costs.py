"""Costs are sums over stages, means over seeds, in readable units."""

from __future__ import annotations

import math
from pathlib import Path

from report_pages import context

from fedsynth.report.elements import Table
from fedsynth.report.sections.costs import cost_section
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory


def test_costs_are_summed_over_stages_and_averaged_over_seeds(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    assert cost_section(context(run)) is None
    run.add_metrics(
        Metric(method, epsilon, seed, stage, name, value * (seed + 1))
        for method, epsilon in (("upper", math.inf), ("psg", 10.0), ("ldpdc", 1.0))
        for seed in (0, 1)
        for stage in (1, 2)
        for name, value in {"images": 1000, "bytes_up": 1e6, "seconds_release": 61.0}.items()
    )
    section = cost_section(context(run))
    assert section is not None
    table = section.content["table"]
    assert isinstance(table, Table)
    assert [tuple(map(str, row.cells)) for row in table.rows] == [
        ("ldpdc", "1", "3,000", "3 MB", "–", "3 min 03 s", "–"),
        ("psg", "10", "3,000", "3 MB", "–", "3 min 03 s", "–"),
        ("upper", "∞", "3,000", "3 MB", "–", "3 min 03 s", "–"),
    ]
    assert [row.reference for row in table.rows] == [False, False, True]
