"""Section of what releases are worth, in real records."""

from __future__ import annotations

import math

from fedsynth.core.text import epsilon_text
from fedsynth.report.elements import Cell, Column, ReportContext, Row, Section, Table
from fedsynth.report.estimates import final_results
from fedsynth.report.worth import real_records_curve, worth


def worth_section(context: ReportContext) -> Section | None:
    """None if accuracies with some of the real records were not measured."""
    curve = real_records_curve(context.run)
    if not curve:
        return None
    rows = []
    for result in final_results(context.metrics):
        value = worth(result.accuracy.mean, curve)
        cells = (
            result.method,
            epsilon_text(result.epsilon),
            f"{result.accuracy.mean:.3f}",
            Cell(value.text, order=value.records),
        )
        rows.append(Row(cells, reference=math.isinf(result.epsilon)))
    columns = (Column("Method", "label"), Column("Budget ε"), Column("Accuracy"))
    caption = (
        "The number of real records with which new classifiers of the same evaluation reach the "
        "same accuracy, interpolated between the numbers below"
    )
    real = Table(
        "Accuracy with some of the parties' own training records, balanced over classes, means "
        "over seeds: a reference that is not private",
        (Column("Real records"), Column("Accuracy")),
        [Row((f"{count:,}", f"{value:.3f}"), reference=True) for count, value in curve.items()],
    )
    content = {"table": Table(caption, [*columns, Column("Worth")], rows), "real": real}
    return Section("worth", "Worth in real records", content)
