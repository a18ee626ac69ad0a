"""Sections of accuracy: the summary of all methods, and the accuracy on each stage's classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from fedsynth.core.text import MISSING, epsilon_text
from fedsynth.experiment.progress import duration
from fedsynth.report.elements import Picture, ReportContext, Section
from fedsynth.report.estimates import final_results
from fedsynth.report.figures import (
    DARK,
    LIGHT,
    accuracy_matrices,
    accuracy_over_budgets,
    accuracy_over_stages,
    render,
)
from fedsynth.report.summary import MeanStd, SummaryRow, stages_of, table_note

MAX_CARDS = 4  # budgets with a card of their own


@dataclass(frozen=True)
class Card:
    """The best result of a group of rows."""

    label: str
    accuracy: MeanStd
    method: str


@dataclass(frozen=True)
class ResultLine:
    """A line of the result table."""

    row: SummaryRow
    accuracy: tuple[tuple[MeanStd | None, bool], ...]  # per stage; True: the best at this epsilon
    release_time: str


def result_section(context: ReportContext) -> Section:
    """The summary table with the best results above and the accuracy over stages below."""
    rows = context.rows
    stages = stages_of(rows)
    content = {
        "setting": context.data.setting[:1].upper() + context.data.setting[1:],
        "stages": stages,
        "lines": result_lines(rows, stages),
        "note": table_note(rows) if rows else "",
        "cards": _cards(rows, stages),
        "budgets": _budget_figure(context),
        "figure": _figure(context) if len(stages) > 1 else None,
    }
    return Section("results", "Results", content)


def result_lines(rows: Sequence[SummaryRow], stages: Sequence[int]) -> list[ResultLine]:
    """The summary rows with the best private accuracy of each stage and epsilon marked."""
    best: dict[tuple[float, int], float] = {}
    for row in rows:
        for stage, accuracy in row.accuracy.items():
            if row.private:
                key = row.epsilon, stage
                best[key] = max(best.get(key, 0.0), accuracy.mean)

    def cell(row: SummaryRow, stage: int) -> tuple[MeanStd | None, bool]:
        value = row.accuracy.get(stage)
        return value, value is not None and best.get((row.epsilon, stage)) == value.mean

    return [
        ResultLine(
            row,
            tuple(cell(row, stage) for stage in stages),
            MISSING if row.seconds is None else duration(row.seconds),
        )
        for row in rows
    ]


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
    light, dark = (accuracy_over_budgets(rows, theme, references) for theme in (LIGHT, DARK))
    if light is None or dark is None:
        return None
    context.run.write_bytes("figures/accuracy_over_budgets.png", render(light, "png"))
    alt = "Test accuracy after the last stage over epsilon. " + " ".join(
        f"{r.method} at epsilon {epsilon_text(r.epsilon)}: {r.accuracy.text}." for r in results
    )
    return Picture(alt, render(light, "svg"), render(dark, "svg"))


def _figure(context: ReportContext) -> Picture | None:
    """Accuracy over stages; also written to the run directory as PNG."""
    rows = context.rows
    light, dark = accuracy_over_stages(rows, LIGHT), accuracy_over_stages(rows, DARK)
    if light is None or dark is None:
        return None
    context.run.write_bytes("figures/accuracy_over_stages.png", render(light, "png"))
    alt = "Test accuracy on all classes seen so far, over the training stages. " + " ".join(
        f"{row.method} at epsilon {epsilon_text(row.epsilon)}: "
        + ", ".join(f"{row.accuracy[stage].mean:.3f}" for stage in sorted(row.accuracy))
        + "."
        for row in rows
        if row.accuracy
    )
    return Picture(alt, render(light, "svg"), render(dark, "svg"))


def stage_section(context: ReportContext) -> Section | None:
    """The accuracy matrices; also written as PNG. None for a single stage."""
    if len(stages_of(context.rows)) < 2:
        return None
    light, dark = (accuracy_matrices(context.metrics, theme) for theme in (LIGHT, DARK))
    if light is None or dark is None:
        return None
    context.run.write_bytes("figures/accuracy_matrices.png", render(light, "png"))
    alt = (
        "One triangle of accuracies per method and epsilon: rows are the stages trained up to, "
        "columns the stages whose classes are tested. The numbers are in metrics.csv, "
        "metric accuracy_of_stage_j."
    )
    picture = Picture(alt, render(light, "svg"), render(dark, "svg"))
    return Section("stages", "Accuracy by stage", {"figure": picture})
