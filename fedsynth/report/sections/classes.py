"""Section of the accuracy on single classes."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import pandas as pd

from fedsynth.core.text import MISSING, epsilon_text
from fedsynth.experiment.evaluation_data import EvaluationData
from fedsynth.report.class_accuracies import class_accuracies, records_per_class
from fedsynth.report.confusions import (
    Confusions,
    confusion_figure,
    confusions,
    frequent_mistakes,
)
from fedsynth.report.elements import Column, Picture, ReportContext, Row, Section, Table
from fedsynth.report.figure_files import embedded

MAX_COLUMNS = 12  # classes with a column of their own; of more, the ends are shown
MAX_MISTAKES = 3  # named per method and budget


def class_section(context: ReportContext) -> Section | None:
    """None if accuracies on classes were not recorded, as before version 0.2."""
    table = class_accuracies(context.metrics)
    if table.empty or len(table.columns) < 2:
        return None
    info, counts = context.data.info, records_per_class(context.data.parties)
    classes = range(info.classes) if info else map(int, table.columns)
    names = {c: info.class_text(c) if info else str(c) for c in classes}
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
    tested = context.data.tested
    caption = (
        f"Accuracy on the {tested.record}s of single classes after the last stage, means over seeds"
    )
    if rarest in names:
        noun = "record" if counts[rarest] == 1 else "records"
        caption += f". The smallest class has {counts[rarest]:,} training {noun}"
    if not shown:
        caption += f". All {len(names)} classes are in metrics.csv, metric accuracy_of_class_c"
    tables = confusions(context.run, context.metrics)
    content = {
        "table": Table(caption, columns, rows),
        "mistakes": _mistakes(tables, names, tested) if tables else None,
        "confusions": _figure(context, tables, names),
    }
    return Section("classes", "Accuracy by class", content)


def _mistakes(tables: Confusions, names: Mapping[int, str], tested: EvaluationData) -> Table:
    """The most frequent mistakes of each method and budget."""
    rows = []
    for (epsilon, method), table in tables.items():
        texts = [
            f"{names.get(label, label)} taken for {names.get(wrong, wrong)} ({share:.0%})"
            for label, wrong, share in frequent_mistakes(table, MAX_MISTAKES)
        ]
        cells = (method, epsilon_text(epsilon), "; ".join(texts) or "none")
        rows.append(Row(cells, reference=math.isinf(epsilon)))
    columns = (Column("Method", "label"), Column("Budget ε"), Column("Most frequent", "text"))
    caption = (
        f"The most frequent mistakes, with their share of the {tested.record}s of the true class"
    )
    return Table(caption, columns, rows)


def _figure(context: ReportContext, tables: Confusions, names: Mapping[int, str]) -> Picture | None:
    """The confusion matrices."""
    alt = (
        "Confusion matrices. One per method and epsilon, of predictions after the last stage: "
        "true classes down, predictions across. The most frequent mistakes are in the table above."
    )
    draw = functools.partial(confusion_figure, tables, names)
    narrow = functools.partial(draw, narrow=True) if len(tables) > 1 else None
    return embedded(context, "confusions", alt, draw, narrow)


def _share(row: pd.Series, label: int) -> str:
    value = float(row.get(label, math.nan))
    return MISSING if math.isnan(value) else f"{value:.3f}"
