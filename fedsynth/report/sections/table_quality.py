"""Section of the likeness of released tables to the records of the evaluation."""

from __future__ import annotations

import math

from fedsynth.core.text import MISSING, epsilon_text
from fedsynth.report.classifier_tables import last_stage
from fedsynth.report.elements import Column, ReportContext, Row, Section, Table

PREFIX = "shape_of_column_"
MAX_COLUMNS = 12  # of the table, with a column of their own


def table_quality_section(context: ReportContext) -> Section | None:
    """Column shapes and pair trends; None for images and where they were not measured."""
    wide = last_stage(context.metrics)
    info = context.data.info
    if "column_shapes" not in wide or info is None:
        return None
    names = {
        f"{PREFIX}{i}": name
        for i, name in enumerate([*(c.name for c in info.columns), "class"], start=1)
    }
    known = [metric for metric in names if metric in wide]
    shown = known if len(known) <= MAX_COLUMNS else []
    rows = []
    for (epsilon, method), values in wide[wide["column_shapes"].notna()].iterrows():
        shapes = values[known]
        cells = (
            method,
            epsilon_text(epsilon),
            _share(values.get("column_shapes")),
            _share(values.get("pair_trends")),
            names[str(shapes.idxmin())],
            *(_share(values[metric]) for metric in shown),
        )
        rows.append(Row(cells, reference=math.isinf(epsilon)))
    columns = [
        Column("Method", "label"),
        Column("Budget ε"),
        Column("Column shapes", title="mean over columns"),
        Column("Pair trends", title="mean over pairs of columns"),
        Column("Worst column", "label"),
        *(Column(names[metric], group="Shape of column") for metric in shown),
    ]
    caption = (
        f"Likeness of all released rows to the {context.data.tested.record}s, by the metrics of "
        "SDMetrics; 1 is the best. A reference of raw records shows what different records of the "
        "same source reach"
    )
    return Section("quality", "Likeness to real records", {"table": Table(caption, columns, rows)})


def _share(value: float | None) -> str:
    return MISSING if value is None or math.isnan(value) else f"{value:.3f}"
