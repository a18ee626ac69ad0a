"""Section of costs: released images, traffic and time."""

from __future__ import annotations

import math

from fedsynth.core.text import MISSING, bytes_text, epsilon_text
from fedsynth.experiment.progress import duration
from fedsynth.report.elements import Cell, Column, ReportContext, Row, Section, Table

_HEADINGS = {
    "images": "Images",
    "bytes_up": "Uploaded",
    "bytes_down": "Downloaded",
    "seconds_release": "Release time",
    "seconds_evaluation": "Evaluation time",
}


def cost_section(context: ReportContext) -> Section | None:
    """Sums over stages and parties, means over seeds; None if no cost was recorded."""
    costs = context.metrics[context.metrics["metric"].isin(_HEADINGS)]
    if costs.empty:
        return None
    sums = costs.groupby(["method", "epsilon", "seed", "metric"])["value"].sum()
    means = sums.groupby(["epsilon", "method", "metric"]).mean().unstack("metric").sort_index()
    rows = [
        Row(
            (
                method,
                epsilon_text(epsilon),
                *(_cost(name, values.get(name, math.nan)) for name in _HEADINGS),
            ),
            reference=math.isinf(epsilon),
        )
        for (epsilon, method), values in means.iterrows()
    ]
    columns = (Column("Method", "label"), Column("Budget ε"), *map(Column, _HEADINGS.values()))
    caption = "Sums over all stages and parties of one seed, means over seeds"
    return Section("costs", "Costs", {"table": Table(caption, columns, rows)})


def _cost(name: str, value: float) -> Cell | str:
    if math.isnan(value):
        return MISSING
    if name.startswith("seconds"):
        return Cell(duration(value), order=value)
    if not name.startswith("bytes"):
        return f"{value:,.0f}"
    return Cell(bytes_text(value), order=value)
