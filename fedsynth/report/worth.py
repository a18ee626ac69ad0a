"""The number of real records with which a classifier would be as accurate as with a release."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from fedsynth.experiment.real_records import PREFIX, real_records_file
from fedsynth.storage.metrics import MetricsFile
from fedsynth.storage.run_directory import RunDirectory


@dataclass(frozen=True)
class Worth:
    """A number of real records, or a bound of it."""

    records: int
    kind: str  # "about", "fewer than" or "at least"

    @property
    def text(self) -> str:
        """The worth in words."""
        return f"{self.kind} {self.records:,}"


def real_records_curve(run: RunDirectory) -> dict[int, float]:
    """Accuracy by the number of real records, means over seeds; empty if it was not measured."""
    file = real_records_file(run)
    if not file.is_file():
        return {}
    rows = [(int(r.metric.removeprefix(PREFIX)), r.value) for r in MetricsFile(file).read()]
    table = pd.DataFrame(rows, columns=["records", "accuracy"])
    means = table.groupby("records")["accuracy"].mean().sort_index()
    return {int(records): float(accuracy) for records, accuracy in means.items()}


def worth(accuracy: float, curve: Mapping[int, float]) -> Worth:
    """The number of real records that give this accuracy.

    Between two measured numbers the accuracy is taken as linear in the logarithm of the number; a
    number with which no more was reached than with a smaller one is left out.

    >>> worth(0.7, {10: 0.5, 1000: 0.9}).text
    'about 100'
    """
    points: list[tuple[int, float]] = []
    for count in sorted(curve):
        if not points or curve[count] > points[-1][1]:
            points.append((count, curve[count]))
    if accuracy < points[0][1]:
        return Worth(points[0][0], "fewer than")
    for (fewer, low), (more, high) in itertools.pairwise(points):
        if accuracy < high:
            share = (accuracy - low) / (high - low)
            exact = fewer * (more / fewer) ** share
            unit = 10 ** max(0, math.floor(math.log10(exact)) - 1)  # two digits
            return Worth(round(exact / unit) * unit, "about")
    return Worth(points[-1][0], "at least")
