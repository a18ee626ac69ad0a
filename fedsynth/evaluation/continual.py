"""Metrics of class-incremental learning: pure functions of per-class results.

After stage s, a classifier with one head over all classes seen is tested on the test images of all
of them. In the accuracy matrix A, A[s][j] is the accuracy after stage s on the classes of stage
j <= s. Pooled accuracy weighs all test images equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from fedsynth.evaluation.types import EvalResult

ClassStages = Sequence[Sequence[int]]  # new classes of each stage


def accuracy_on(result: EvalResult, classes: Sequence[int]) -> float:
    """Pooled accuracy of one classifier on these classes."""
    counts = [result.per_class[label] for label in classes]
    return sum(correct for correct, _ in counts) / sum(tested for _, tested in counts)


def matrix_row(results: Sequence[EvalResult], stages: ClassStages) -> list[float]:
    """Accuracy on the classes of each fully tested stage, mean over classifiers."""
    tested = [classes for classes in stages if all(c in results[0].per_class for c in classes)]
    return [fmean(accuracy_on(result, classes) for result in results) for classes in tested]


def class_row(results: Sequence[EvalResult]) -> dict[int, float]:
    """Accuracy on each class that was tested, mean over classifiers."""
    tested = sorted(c for c, (_, count) in results[0].per_class.items() if count)
    return {c: fmean(accuracy_on(result, [c]) for result in results) for c in tested}


def accuracy_matrix(
    history: Sequence[Sequence[EvalResult]], stages: ClassStages
) -> list[list[float]]:
    """A: one row per evaluated stage, with columns for the stages up to it."""
    return [matrix_row(results, stages[: after + 1]) for after, results in enumerate(history)]


def forgetting(matrix: Sequence[Sequence[float]]) -> float | None:
    """Best earlier accuracy on the classes of a stage minus the last, mean over all earlier stages.

    Negative if later stages helped, None for a single stage.
    """
    if len(matrix) < 2:
        return None
    last = matrix[-1]
    return fmean(
        max(row[stage] for row in matrix[stage:-1]) - last[stage]
        for stage in range(len(matrix) - 1)
    )


def stage_rows(results: Sequence[EvalResult], stages: ClassStages) -> dict[str, float]:
    """Metrics of one stage from the results of its classifiers; stages count from 1 in names.

    `accuracy` is the mean over all results, with equal weight per kind of classifier.
    `accuracy_std` is the deviation over repetitions (n - 1) of the mean over kinds, absent for a
    single repetition. Each kind also has a metric of its own, named after protocol and classifier.
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
    rows |= {f"accuracy_of_class_{c}": accuracy for c, accuracy in class_row(results).items()}
    for (protocol, name), same in kinds.items():
        rows[f"accuracy_{protocol}_{name}"] = fmean(r.accuracy for r in same)
    return rows | _calibrated(kinds) | _optimistic(results)


def by_kind(results: Sequence[EvalResult]) -> dict[tuple[str, str], list[EvalResult]]:
    """The results by protocol and classifier."""
    kinds: dict[tuple[str, str], list[EvalResult]] = {}
    for result in results:
        kinds.setdefault((result.protocol, result.classifier), []).append(result)
    return kinds


def _calibrated(kinds: dict[tuple[str, str], list[EvalResult]]) -> dict[str, float]:
    """Accuracy relative to that of the same classifier trained on real data.

    The average is the mean of the ratios, not the ratio of the means. Also the number of kinds.
    """
    rows: dict[str, float] = {}
    ratios = []
    for (protocol, name), same in kinds.items():
        if real := same[0].real_data_accuracy:
            rows[f"real_{protocol}_{name}"] = real
            ratios.append(fmean(r.accuracy for r in same) / real)
    if ratios:
        rows["calibrated_accuracy"] = fmean(ratios)
    return rows | ({"classifiers": len(kinds)} if len(kinds) > 1 else {})


def _optimistic(results: Sequence[EvalResult]) -> dict[str, float]:
    """The best test during training, mean over classifiers: a number selected on the test set."""
    best = [r.best_test_accuracy for r in results if r.best_test_accuracy is not None]
    if not best:
        return {}
    return {
        "accuracy_optimistic_max": fmean(best),
        "tests_on_the_way": results[0].tests_during_training,
    }


def summary_rows(history: Sequence[Sequence[EvalResult]], stages: ClassStages) -> dict[str, float]:
    """Metrics of all stages together."""
    rows = {"average_accuracy": fmean(fmean(r.accuracy for r in results) for results in history)}
    lost = forgetting(accuracy_matrix(history, stages))
    return rows if lost is None else rows | {"forgetting": lost}
