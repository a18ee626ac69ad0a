"""Accuracies on single classes after the last stage."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fedsynth.core.types import PartyInfo

PREFIX = "accuracy_of_class_"


def class_accuracies(metrics: pd.DataFrame) -> pd.DataFrame:
    """A row per epsilon and method, a column per class, means over seeds; empty if not recorded."""
    cells = metrics[metrics["metric"].str.fullmatch(PREFIX + r"\d+")]
    if cells.empty:
        return pd.DataFrame()
    cells = cells[cells["stage"] == cells["stage"].max()]
    cells = cells.assign(label=cells["metric"].str.removeprefix(PREFIX).astype(int))
    return cells.pivot_table(index=["epsilon", "method"], columns="label", values="value")


def records_per_class(parties: Sequence[PartyInfo]) -> dict[int, int]:
    """Training records of each class over all parties."""
    counts: dict[int, int] = {}
    for party in parties:
        for label, count in party.class_counts.items():
            counts[label] = counts.get(label, 0) + count
    return dict(sorted(counts.items()))
