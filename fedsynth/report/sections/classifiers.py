"""Section of the single classifiers and of the quality of the images."""

from __future__ import annotations

from fedsynth.core.text import MISSING
from fedsynth.report.classifier_tables import TableData, by_classifier, by_quality
from fedsynth.report.elements import Column, ReportContext, Row, Section, Table


def classifier_section(context: ReportContext) -> Section | None:
    """None if a single classifier was trained and image quality was not measured."""
    tables = [_table(t) for t in (by_classifier(context.metrics), by_quality(context.metrics)) if t]
    if not tables:
        return None
    return Section("classifiers", "Classifiers and images", {"tables": tables})


def _table(data: TableData) -> Table:
    first, *others = data.headings
    columns = (Column(first, "label"), *map(Column, others))
    rows = [Row(row, reference=row[1] in ("∞", MISSING)) for row in data.rows]
    return Table(data.caption, columns, rows)
