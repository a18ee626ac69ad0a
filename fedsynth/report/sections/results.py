"""Sections of accuracy: the summary of all methods, and the accuracy on each stage's classes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from fedsynth.core.text import MISSING, epsilon_text
from fedsynth.experiment.progress import duration
from fedsynth.report.elements import Cell, Column, Picture, ReportContext, Row, Section, Table
from fedsynth.report.estimates import final_results
from fedsynth.report.figure_files import embedded
from fedsynth.report.figures import (
    accuracy_matrices,
    accuracy_over_budgets,
    accuracy_over_stages,
)
from fedsynth.report.report_data import ReportData
from fedsynth.report.summary import MeanStd, SummaryRow, stages_of, table_note

MAX_CARDS = 4  # budgets with a card of their own


@dataclass(frozen=True)
class Card:
    """The best result of a group of rows."""

    label: str
    accuracy: MeanStd
    method: str


def result_section(context: ReportContext) -> Section:
    """The summary table with the best results above and the accuracy over stages below."""
    rows = context.rows
    stages = stages_of(rows)
    content = {
        "table": result_table(rows, stages, context.data) if rows else None,
        "last": stages[-1] if stages else None,
        "cards": _cards(rows, stages),
        "budgets": _budget_figure(context),
        "figure": _figure(context) if len(stages) > 1 else None,
    }
    return Section("results", "Results", content)


def result_table(rows: Sequence[SummaryRow], stages: Sequence[int], data: ReportData) -> Table:
    """The summary rows with the best private accuracy of each stage and epsilon in bold."""
    best: dict[tuple[float, int], float] = {}
    for row in rows:
        for stage, accuracy in row.accuracy.items():
            if row.private:
                key = row.epsilon, stage
                best[key] = max(best.get(key, 0.0), accuracy.mean)

    def cell(row: SummaryRow, stage: int) -> Cell | str:
        value = row.accuracy.get(stage)
        if value is None:
            return MISSING
        return Cell(*value.texts, best=best.get((row.epsilon, stage)) == value.mean)

    columns = [
        Column("Method", "label"),
        Column("Budget ε"),
        *(
            [Column("Accuracy")]
            if len(stages) == 1
            else [Column(str(stage), group="After stage") for stage in stages]
        ),
        *([] if len(stages) == 1 else [Column("Average"), Column("Forgetting")]),
        *(Column(name, group="ε spent") for name in ("PLD", "RDP", "paper")),
        Column("Release time"),
    ]
    lines = [
        Row(
            (
                row.method,
                epsilon_text(row.epsilon),
                *(cell(row, stage) for stage in stages),
                *([] if len(stages) == 1 else map(_measured, (row.average, row.forgetting))),
                *map(epsilon_text, (row.epsilon_pld, row.epsilon_rdp, row.epsilon_paper)),
                seconds_cell(row.seconds),
            ),
            reference=not row.private,
        )
        for row in rows
    ]
    setting, tested = data.setting, data.tested
    sentence = f"{setting[:1].upper()}{setting[1:]}. " if setting else ""
    after = "" if len(stages) == 1 else ", after each stage"
    caption = (
        f"{sentence}Accuracy on {tested.name} of all classes seen{after}; "
        f"{table_note(rows, tested)}. "
        "Bold: best private method at this epsilon."
    )
    return Table(caption, columns, lines)


def _measured(value: MeanStd | None) -> Cell | str:
    return MISSING if value is None else Cell(*value.texts)


def seconds_cell(seconds: float | None) -> Cell | str:
    """A duration, in order of its seconds."""
    return MISSING if seconds is None else Cell(duration(seconds), order=seconds)


def _cards(rows: Sequence[SummaryRow], stages: Sequence[int]) -> list[Card]:
    """The best private method at each epsilon after the last stage, and the best reference."""
    if not stages:
        return []
    last = stages[-1]
    completed = [row for row in rows if last in row.accuracy]
    budgets = sorted({row.epsilon for row in completed if row.private})[:MAX_CARDS]
    groups = {
        f"Best at ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{epsilon_text(epsilon)}": [
            row for row in completed if row.epsilon == epsilon
        ]
        for epsilon in budgets
    }
    groups["Best without privacy"] = [row for row in completed if not row.private]
    cards = []
    for label, group in groups.items():
        if group:
            best = max(group, key=lambda row: row.accuracy[last].mean)
            cards.append(Card(label, best.accuracy[last], best.method))
    return cards


def _budget_figure(context: ReportContext) -> Picture | None:
    """Accuracy over epsilon with intervals, if a method was measured at several budgets."""
    results = final_results(context.metrics)
    private = [result for result in results if result.private]
    if not private:
        return None
    rows = pd.DataFrame(
        {
            "data": context.data.dataset,
            "method": result.method,
            "epsilon": result.epsilon,
            "accuracy": result.accuracy.mean,
            "low": result.accuracy.low,
            "high": result.accuracy.high,
        }
        for result in private
    )
    references = {r.method: r.accuracy.mean for r in results if not r.private}
    accuracy = context.data.tested.accuracy
    alt = f"{accuracy.capitalize()} after the last stage over epsilon. " + " ".join(
        f"{r.method} at epsilon {epsilon_text(r.epsilon)}: {r.accuracy.text}." for r in results
    )
    return embedded(
        context,
        "accuracy_over_budgets",
        alt,
        lambda theme: accuracy_over_budgets(rows, theme, references, accuracy=accuracy),
    )


def _figure(context: ReportContext) -> Picture | None:
    """Accuracy over stages; with several budgets, below each other on a phone."""
    rows = context.rows
    accuracy = context.data.tested.accuracy.capitalize()
    alt = f"{accuracy} on all classes seen so far, over the training stages. " + " ".join(
        f"{row.method} at epsilon {epsilon_text(row.epsilon)}: "
        + ", ".join(f"{row.accuracy[stage].mean:.3f}" for stage in sorted(row.accuracy))
        + "."
        for row in rows
        if row.accuracy
    )
    several = len({row.epsilon for row in rows if row.private}) > 1
    draw = functools.partial(accuracy_over_stages, rows, accuracy=context.data.tested.accuracy)
    narrow = functools.partial(draw, narrow=True) if several else None
    return embedded(
        context,
        "accuracy_over_stages",
        alt,
        draw,
        narrow,
    )


def stage_section(context: ReportContext) -> Section | None:
    """The accuracy matrices; None for a single stage."""
    if len(stages_of(context.rows)) < 2:
        return None
    alt = (
        "One triangle of accuracies per method and epsilon: rows are the stages trained up to, "
        "columns the stages whose classes are tested. The numbers are in metrics.csv, "
        "metric accuracy_of_stage_j."
    )
    draw = functools.partial(accuracy_matrices, context.metrics)
    narrow = functools.partial(draw, narrow=True) if len(context.rows) > 2 else None
    picture = embedded(context, "accuracy_matrices", alt, draw, narrow)
    return Section("stages", "Accuracy by stage", {"figure": picture}) if picture else None
