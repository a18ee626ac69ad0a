"""What learning stage after stage kept and lost: pure functions of per-class results.

The setting is class-incremental: after stage s a classifier with one head over all classes seen is
tested on the test images of all of them. A is the accuracy matrix: A[s][j] is the accuracy, after
stage s, on the classes of stage j <= s. Pooled accuracy counts all test images alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from fedsynth.evaluation.types import EvalResult

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
    """Metrics of one stage, judged by several nets; stages count from 1 in names.

    `accuracy` is the mean over all nets, hence over the kinds of classifiers, each kind alike;
    `accuracy_std` the deviation over fresh nets (n - 1) of the mean over kinds, absent when there
    is one net of a kind. Each kind also stands by itself, under the name of its protocol.
    """
    pooled = [result.accuracy for result in results]
    kinds = by_kind(results)
    runs = [fmean(r.accuracy for r in run) for run in zip(*kinds.values(), strict=True)]
    rows = {"accuracy": fmean(pooled)}
    if len(runs) > 1:
        rows["accuracy_std"] = stdev(runs)
    rows |= {f"accuracy_net_{net}": value for net, value in enumerate(pooled)}
    row = matrix_row(results, stages)
    rows |= {f"accuracy_of_stage_{stage}": value for stage, value in enumerate(row, start=1)}
    for (protocol, name), same in kinds.items():
        rows[f"accuracy_{protocol}_{name}"] = fmean(r.accuracy for r in same)
    return rows | _calibrated(kinds) | _optimistic(results)


def by_kind(results: Sequence[EvalResult]) -> dict[tuple[str, str], list[EvalResult]]:
    """The results of each protocol and classifier."""
    kinds: dict[tuple[str, str], list[EvalResult]] = {}
    for result in results:
        kinds.setdefault((result.protocol, result.classifier), []).append(result)
    return kinds


def _calibrated(kinds: dict[tuple[str, str], list[EvalResult]]) -> dict[str, float]:
    """Accuracy over that of the same classifier on real data: the mean of the ratios, not the
    ratio of the means; and over how many kinds all means go."""
    rows: dict[str, float] = {}
    ratios = []
    for (protocol, name), same in kinds.items():
        if real := same[0].real:
            rows[f"real_{protocol}_{name}"] = real
            ratios.append(fmean(r.accuracy for r in same) / real)
    if ratios:
        rows["calibrated_accuracy"] = fmean(ratios)
    return rows | ({"classifiers": len(kinds)} if len(kinds) > 1 else {})


def _optimistic(results: Sequence[EvalResult]) -> dict[str, float]:
    """The best of all tests on the way, mean over nets: a number chosen on the test set."""
    best = [r.optimistic for r in results if r.optimistic is not None]
    if not best:
        return {}
    return {"accuracy_optimistic_max": fmean(best), "tests_on_the_way": results[0].looks}


def summary_rows(history: Sequence[Sequence[EvalResult]], stages: ClassStages) -> dict[str, float]:
    """Metrics of a whole course: the results of every stage, several nets each."""
    rows = {"average_accuracy": fmean(fmean(r.accuracy for r in results) for results in history)}
    lost = forgetting(accuracy_matrix(history, stages))
    return rows if lost is None else rows | {"forgetting": lost}
