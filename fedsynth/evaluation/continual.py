"""What learning stage after stage kept and lost: pure functions of per-class results.

The setting is class-incremental: after stage s a classifier with one head over all classes seen is
tested on the test images of all of them. A is the accuracy matrix: A[s][j] is the accuracy, after
stage s, on the classes of stage j <= s. Pooled accuracy counts all test images alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from fedsynth.evaluation.downstream import EvalResult

ClassStages = Sequence[Sequence[int]]  # the classes that each stage brings, in order


def accuracy_on(result: EvalResult, classes: Sequence[int]) -> float:
    """Pooled accuracy of one net on these classes."""
    counts = [result.per_class[name] for name in classes]
    return sum(correct for correct, _ in counts) / sum(tested for _, tested in counts)


def matrix_row(results: Sequence[EvalResult], stages: ClassStages) -> list[float]:
    """Accuracy on the classes of each stage that has been tested whole, mean over the nets."""
    tested = [classes for classes in stages if all(c in results[0].per_class for c in classes)]
    return [fmean(accuracy_on(result, classes) for result in results) for classes in tested]


def accuracy_matrix(
    history: Sequence[Sequence[EvalResult]], stages: ClassStages
) -> list[list[float]]:
    """A: one row for each stage that was judged, columns as far as classes were seen."""
    return [matrix_row(results, stages[: after + 1]) for after, results in enumerate(history)]


def forgetting(matrix: Sequence[Sequence[float]]) -> float | None:
    """Best earlier accuracy on a stage's classes minus the last one, mean over all stages but the
    last; negative where later stages helped, None where there is only one stage."""
    if len(matrix) < 2:
        return None
    last = matrix[-1]
    return fmean(
        max(row[stage] for row in matrix[stage:-1]) - last[stage]
        for stage in range(len(matrix) - 1)
    )


def stage_rows(results: Sequence[EvalResult], stages: ClassStages) -> dict[str, float]:
    """Metrics of one stage, judged by several nets. `accuracy_std` is the deviation over nets
    (n - 1), absent when there is one net; stages count from 1 in names."""
    pooled = [result.accuracy for result in results]
    rows = {"accuracy": fmean(pooled)}
    if len(pooled) > 1:
        rows["accuracy_std"] = stdev(pooled)
    rows |= {f"accuracy_net_{net}": value for net, value in enumerate(pooled)}
    row = matrix_row(results, stages)
    return rows | {f"accuracy_of_stage_{stage}": value for stage, value in enumerate(row, start=1)}


def summary_rows(history: Sequence[Sequence[EvalResult]], stages: ClassStages) -> dict[str, float]:
    """Metrics of a whole course: the results of every stage, several nets each."""
    rows = {"average_accuracy": fmean(fmean(r.accuracy for r in results) for results in history)}
    lost = forgetting(accuracy_matrix(history, stages))
    return rows if lost is None else rows | {"forgetting": lost}
