"""Section of the accuracy on single classes."""

from __future__ import annotations

import math

import pandas as pd

from fedsynth.core.text import MISSING, epsilon_text
from fedsynth.report.class_accuracies import class_accuracies, records_per_class
from fedsynth.report.elements import Column, ReportContext, Row, Section, Table

MAX_COLUMNS = 12  # classes with a column of their own; of more, the ends are shown


def class_section(context: ReportContext) -> Section | None:
    """None if accuracies on classes were not recorded, as before version 0.2."""
    table = class_accuracies(context.metrics)
    if table.empty or len(table.columns) < 2:
        return None
    info, counts = context.data.info, records_per_class(context.data.parties)
    names = {int(c): info.class_text(int(c)) if info else str(c) for c in table.columns}
    rarest = min(counts, key=lambda c: counts[c]) if len(set(counts.values())) > 1 else None
    shown = list(table.columns) if len(table.columns) <= MAX_COLUMNS else []
    columns = [
        Column("Method", "label"),
        Column("Budget ε"),
        Column("Worst class", "label"),
        Column("Accuracy", title="on the worst class"),
    ]
    if rarest in names:
        columns.append(Column(f"Smallest class: {names[rarest]}"))
    columns += [Column(names[c]) for c in shown]
    rows = []
    for (epsilon, method), row in table.iterrows():
        worst = row.idxmin()
        cells = [method, epsilon_text(epsilon), names[worst], _share(row, worst)]
        cells += [_share(row, rarest)] if rarest in names else []
        cells += [_share(row, c) for c in shown]
        rows.append(Row(cells, reference=math.isinf(epsilon)))
    caption = (
        "Accuracy on the test records of single classes after the last stage, means over seeds"
    )
    if rarest in names:
        caption += f". The smallest class has {counts[rarest]:,} training records"
    if not shown:
        caption += f". All {len(names)} classes are in metrics.csv, metric accuracy_of_class_c"
    return Section("classes", "Accuracy by class", {"table": Table(caption, columns, rows)})


def _share(row: pd.Series, label: int) -> str:
    value = float(row.get(label, math.nan))
    return MISSING if math.isnan(value) else f"{value:.3f}"
