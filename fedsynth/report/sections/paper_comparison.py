"""Section of the comparison with published numbers."""

from __future__ import annotations

import math

from fedsynth.report.elements import Column, ColumnKind, ReportContext, Row, Section, Table
from fedsynth.report.paper_comparison.table import (
    HEADINGS,
    NOTE,
    cells,
    compare_run,
    departures,
    markdown,
)
from fedsynth.storage.run_directory import COMPARISON

_KINDS: tuple[ColumnKind, ...] = (
    "label",
    "number",
    "text",
    "number",
    "number",
    "text",
    "text",
    "text",
)


def comparison_section(context: ReportContext) -> Section | None:
    """None if nothing comparable is published; also writes `comparison.md`."""
    config, pairs = context.run.read_config(), compare_run(context.run)
    if not pairs:
        return None
    context.write(COMPARISON, markdown(pairs, config).encode())
    columns = [Column(name, kind) for name, kind in zip(HEADINGS, _KINDS, strict=True)]
    rows = [Row(cells(pair), reference=math.isinf(pair.ours.epsilon)) for pair in pairs]
    content = {"table": Table(NOTE, columns, rows), "departures": departures(config)}
    return Section("comparison", "Comparison with published results", content, "Published results")
