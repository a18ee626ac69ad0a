"""Results that a reader would not expect, found by fixed rules and said in words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pandas as pd

from fedsynth.core.text import epsilon_text
from fedsynth.report.class_accuracies import class_accuracies, records_per_class
from fedsynth.report.estimates import FinalResult, percent
from fedsynth.report.finding import UPPER_BOUND
from fedsynth.report.report_data import ReportData

MARGIN = 0.005  # a smaller difference between budgets is not mentioned
NEAR_GUESSING = 0.02
MAX_LINES = 12
MAX_CLASSES = 10  # named


def surprises(results: Sequence[FinalResult], metrics: pd.DataFrame, data: ReportData) -> list[str]:
    """Sentences on surprising results; empty if there are none."""
    lines = [
        *_better_with_less(results),
        *_above_the_bound(results),
        *_near_guessing(results, data),
        *_classes_never_found(metrics, data),
    ]
    more = len(lines) - MAX_LINES
    return lines if more <= 0 else [*lines[:MAX_LINES], f"And {more} more of these kinds."]


def _better_with_less(results: Sequence[FinalResult]) -> list[str]:
    """Methods that reach more at a smaller epsilon than at the next larger one."""
    lines = []
    for method in dict.fromkeys(result.method for result in results if result.private):
        own = sorted(
            (r for r in results if r.private and r.method == method), key=lambda r: r.epsilon
        )
        for less, more in itertools.pairwise(own):
            gain = less.accuracy.mean - more.accuracy.mean
            if gain >= MARGIN:
                lines.append(
                    f"{method} is better at ε = {epsilon_text(less.epsilon)} "
                    f"({percent(less.accuracy.mean)}) than at ε = {epsilon_text(more.epsilon)} "
                    f"({percent(more.accuracy.mean)}), although that takes less noise. "
                    + _apart(less, more)
                )
    return lines


def _apart(less: FinalResult, more: FinalResult) -> str:
    """True if the intervals of a better and a worse result are apart."""
    if less.accuracy.low is None or more.accuracy.high is None:
        return "With one seed, chance is not excluded."
    if less.accuracy.low > more.accuracy.high:
        return "The intervals do not overlap: its settings may suit the smaller budget better."
    return "The intervals overlap, so it may be chance."


def _above_the_bound(results: Sequence[FinalResult]) -> list[str]:
    """Private results above the reference that trains on all raw records."""
    bounds = [r.accuracy.mean for r in results if r.method == UPPER_BOUND]
    return [
        f"{r.method} at ε = {epsilon_text(r.epsilon)} reaches {percent(r.accuracy.mean)}, more "
        f"than {UPPER_BOUND}, which trains on the raw records ({percent(bounds[0])})."
        for r in results
        if bounds and r.private and r.accuracy.mean >= bounds[0] + MARGIN
    ]


def guessing_accuracy(data: ReportData) -> float | None:
    """The accuracy of always guessing the most frequent class of the training records."""
    counts = records_per_class(data.parties)
    if counts and sum(counts.values()):
        return max(counts.values()) / sum(counts.values())
    return 1 / data.info.classes if data.info else None


def _near_guessing(results: Sequence[FinalResult], data: ReportData) -> list[str]:
    guess = guessing_accuracy(data)
    return [
        f"{r.method} at ε = {epsilon_text(r.epsilon)} reaches {percent(r.accuracy.mean)}, no more "
        f"than about guessing the most frequent class, which is right on {percent(guess)}."
        for r in results
        if guess is not None and r.accuracy.mean <= guess + NEAR_GUESSING
    ]


def _classes_never_found(metrics: pd.DataFrame, data: ReportData) -> list[str]:
    """Classes of which no record was classified correctly with any seed."""
    lines = []
    for (epsilon, method), row in class_accuracies(metrics).iterrows():
        labels = [int(c) for c in row.index[row == 0.0]]
        if not labels:
            continue
        names = [data.info.class_text(c) if data.info else str(c) for c in labels[:MAX_CLASSES]]
        more = f" and {len(labels) - MAX_CLASSES} more" if len(labels) > MAX_CLASSES else ""
        noun = "class" if len(labels) == 1 else "classes"
        lines.append(
            f"{method} at ε = {epsilon_text(float(epsilon))} gets no {data.tested.record} right "
            f"of the {noun} {', '.join(names)}{more}."
        )
    return lines
