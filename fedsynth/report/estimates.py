"""Estimates of the accuracy after the last stage, with intervals over seeds, and their words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95% interval, which a single seed does not have."""

    mean: float
    seeds: int
    low: float | None = None
    high: float | None = None

    @staticmethod
    def of(values: Sequence[float]) -> Estimate:
        """The mean with Student's interval, cut to the accuracies that are possible."""
        mean, count = math.fsum(values) / len(values), len(values)
        if count < 2:
            return Estimate(mean, count)
        from scipy.stats import t

        variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
        half = float(t.ppf((1 + LEVEL) / 2, count - 1)) * math.sqrt(variance / count)
        return Estimate(mean, count, max(0.0, mean - half), min(1.0, mean + half))

    @property
    def text(self) -> str:
        """The mean in percent, with the interval where there is one."""
        if self.low is None or self.high is None:
            return percent(self.mean)
        return f"{percent(self.mean)} (95% interval {percent(self.low)} to {percent(self.high)})"


@dataclass(frozen=True)
class FinalResult:
    """A method at a budget after the last stage."""

    method: str
    epsilon: float
    accuracy: Estimate
    released: float | None = None  # images or rows over all stages, mean over seeds; None: a model

    @property
    def private(self) -> bool:
        """False for a reference, which has no privacy guarantee."""
        return math.isfinite(self.epsilon)


def final_results(metrics: pd.DataFrame) -> list[FinalResult]:
    """The results after the last stage of the run; without those that did not get there."""
    accuracies = metrics[metrics["metric"] == "accuracy"]
    last = accuracies[accuracies["stage"] == accuracies["stage"].max()]
    released = metrics[metrics["metric"] == "images"]
    found = []
    for (budget, name), group in last.groupby(["epsilon", "method"], sort=True):
        epsilon, method = float(budget), str(name)
        own = released[(released["method"] == method) & (released["epsilon"] == epsilon)]
        own = own[own["seed"].isin(set(group["seed"]))]
        number = None if own.empty else float(own.groupby("seed")["value"].sum().mean())
        found.append(FinalResult(method, epsilon, Estimate.of(list(group["value"])), number))
    return found


def percent(share: float) -> str:
    """A share in percent with one decimal.

    >>> percent(0.8714)
    '87.1%'
    """
    return f"{share:.1%}"
