"""Which printed number goes beside which of ours, and in what the two differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedsynth.report.paper_comparison.numbers import Published

ALONE = "one party with all data"  # what every table of the papers is about
MOST_DIFFERENCES = 3
EXACT_SHOWN, NEAREST_SHOWN = 4, 2  # printed numbers beside one of ours
AFTER_A_PAPER = ("_joint",)  # endings of our own forms of a published method


@dataclass(frozen=True)
class Measured:
    """One number of a run: the last stage, mean over seeds."""

    data: str
    method: str
    epsilon: float
    parties: str  # ALONE, or who else holds what
    classifier: str
    protocol: str
    metric: str
    value: float
    deviation: float | None = None  # over seeds
    spc: float | None = None  # images a class


@dataclass(frozen=True)
class Comparison:
    """One of ours beside a printed one, with every dimension in which they differ."""

    ours: Measured
    paper: Published
    differs: tuple[str, ...]


def family(method: str) -> str:
    """The published method that one of ours follows; itself where it follows none."""
    for ending in AFTER_A_PAPER:
        method = method.removesuffix(ending)
    return method


def measures(metric: str) -> str:
    """What a metric measures: the best epoch's accuracy is an accuracy, too."""
    return metric.removesuffix("_optimistic_max")


def comparable(ours: Measured, paper: Published) -> bool:
    """The same data, the same method or one that follows it, and the same thing measured."""
    return (
        ours.data == paper.data
        and family(ours.method) == paper.method
        and measures(ours.metric) == measures(paper.metric)
        and (math.isinf(ours.epsilon) == (paper.epsilon is not None and math.isinf(paper.epsilon)))
    )


def differences(ours: Measured, paper: Published) -> tuple[str, ...]:
    """The dimensions in which they differ, ours first; none where they may be compared as is."""
    found = []
    if ours.method != paper.method:
        found.append(f"method ({ours.method}, {paper.printed_method})")
    if paper.epsilon is None:
        found.append("epsilon (not printed)")
    elif not math.isclose(ours.epsilon, paper.epsilon, rel_tol=1e-9):
        found.append(f"epsilon ({ours.epsilon:g}, {paper.epsilon:g})")
    if ours.protocol != paper.protocol:
        found.append(f"protocol ({ours.protocol}, {paper.protocol})")
    if ours.classifier != paper.classifier:
        found.append(f"classifier ({ours.classifier}, {paper.classifier or 'not named'})")
    if ours.metric != paper.metric:
        best = ("last epoch", "best epoch on test data")
        ours_is_best = ours.metric != measures(ours.metric)
        mine, theirs = best[::-1] if ours_is_best else best
        found.append(f"epoch ({mine}, {theirs})")
    if ours.parties != ALONE:
        found.append(f"parties ({ours.parties}, {ALONE})")
    return tuple(found)


def beside(ours: Measured, papers: Iterable[Published]) -> list[Comparison]:
    """The printed numbers that differ least from one of ours: all that agree in everything (a few
    where there are many), else the nearest few, and none beyond `MOST_DIFFERENCES`."""
    pairs = [Comparison(ours, p, differences(ours, p)) for p in papers if comparable(ours, p)]
    if not pairs:
        return []
    fewest = min(len(pair.differs) for pair in pairs)
    if fewest > MOST_DIFFERENCES:
        return []
    nearest = sorted((p for p in pairs if len(p.differs) == fewest), key=_remoteness)
    shown = {(p.paper.source, p.paper.spc, p.paper.value, p.differs): p for p in reversed(nearest)}
    unique = sorted(shown.values(), key=_remoteness)
    return unique[: NEAREST_SHOWN if fewest else EXACT_SHOWN]


def _remoteness(pair: Comparison) -> tuple[float, ...]:
    """Smaller is nearer, among pairs with equally many differences."""
    ours, paper = pair.ours, pair.paper
    return (
        float(ours.protocol != paper.protocol),
        _apart(ours.epsilon, paper.epsilon),
        float(ours.classifier != paper.classifier),
        float(_ablation(paper.setting)),
        _apart(ours.spc, paper.spc),
    )


def _apart(one: float | None, other: float | None) -> float:
    if one is None or other is None or math.isinf(one) or math.isinf(other):
        return 0.0 if one == other else 9.0
    return abs(math.log(one / other))


def _ablation(setting: str) -> bool:
    """A row of an experiment that takes something away or turns one knob."""
    return setting.startswith(("no ", "best over", "sigma", "L=", "I=", "control"))


def of_a_run(ours: Sequence[Measured], papers: Sequence[Published]) -> list[Comparison]:
    """All pairs of a run. Of a method and budget only the numbers with the fewest differences are
    shown: thirteen classifiers beside one ConvNet would say nothing."""
    groups: dict[tuple[str, float, str], list[list[Comparison]]] = {}
    for number in ours:
        if pairs := beside(number, papers):
            key = (number.method, number.epsilon, measures(number.metric))
            groups.setdefault(key, []).append(pairs)
    chosen: list[Comparison] = []
    for found in groups.values():
        fewest = min(len(pairs[0].differs) for pairs in found)
        best = [pairs for pairs in found if len(pairs[0].differs) == fewest]
        kept = best if fewest == 0 or len(best) == 1 else best[:NEAREST_SHOWN]
        chosen += [pair for pairs in kept for pair in pairs]
    return chosen
