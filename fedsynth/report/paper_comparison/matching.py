"""Selection of published numbers for comparison, and the differences in their conditions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedsynth.experiment.evaluation_data import TEST_DATA, EvaluationData
from fedsynth.report.paper_comparison.numbers import Published

BEST_EPOCH = "best epoch on test data"
ALONE = "one party with all data"  # the setting of all published tables
MAX_DIFFERENCES = 5
MAX_EXACT, MAX_NEAREST = 4, 2  # published numbers per measured one
VARIANTS = ("_joint",)  # suffixes of variants of published methods


@dataclass(frozen=True)
class Measured:
    """A number of a run after the last stage, mean over seeds."""

    data: str
    method: str
    epsilon: float
    parties: str  # ALONE, or their number and order
    classifier: str
    protocol: str
    metric: str
    value: float
    deviation: float | None = None  # over seeds
    spc: float | None = None  # images per class
    changed: str = ""  # settings of the method and its evaluation that are not the published ones
    tested: EvaluationData = TEST_DATA


@dataclass(frozen=True)
class Comparison:
    """A measured and a published number, with all differences in their conditions."""

    ours: Measured
    paper: Published
    differs: tuple[str, ...]
    meaning: str = ""  # how unit, relation or delta differ, with our epsilon in the other meaning


def family(method: str) -> str:
    """The published method that a method is a variant of, or the method itself."""
    for suffix in VARIANTS:
        method = method.removesuffix(suffix)
    return method


def quantity(metric: str) -> str:
    """The measured quantity: accuracy for the accuracy of the best epoch as well."""
    return metric.removesuffix("_optimistic_max")


def comparable(ours: Measured, paper: Published) -> bool:
    """True if data, published method and measured quantity are the same."""
    return (
        ours.data == paper.data
        and family(ours.method) == paper.method
        and quantity(ours.metric) == quantity(paper.metric)
        and (math.isinf(ours.epsilon) == (paper.epsilon is not None and math.isinf(paper.epsilon)))
    )


def differences(ours: Measured, paper: Published) -> tuple[str, ...]:
    """The conditions that differ, each with the measured value first."""
    differing = []
    if ours.method != paper.method:
        differing.append(f"method ({ours.method}, {paper.printed_method})")
    if paper.epsilon is None:
        differing.append("epsilon (not printed)")
    elif not math.isclose(ours.epsilon, paper.epsilon, rel_tol=1e-9):
        differing.append(f"epsilon ({ours.epsilon:g}, {paper.epsilon:g})")
    if ours.protocol != paper.protocol:
        differing.append(f"protocol ({ours.protocol}, {paper.protocol})")
    if ours.classifier != paper.classifier:
        differing.append(f"classifier ({ours.classifier}, {paper.classifier or 'not named'})")
    if ours.metric != paper.metric:
        measured, published = "last epoch", BEST_EPOCH
        if ours.metric != quantity(ours.metric):
            held_out = ours.tested != TEST_DATA
            measured = f"best epoch on {ours.tested.name}" if held_out else BEST_EPOCH
            published = "last epoch"
        differing.append(f"epoch ({measured}, {published})")
    if ours.parties != ALONE:
        differing.append(f"parties ({ours.parties}, {ALONE})")
    if ours.spc is not None and paper.protocol != "none" and paper.spc != round(ours.spc):
        printed = "not printed" if paper.spc is None else f"{paper.spc:,}"
        differing.append(f"images per class ({ours.spc:,.0f}, {printed})")
    if ours.changed:
        differing.append(f"settings ({ours.changed})")
    if _ablation(paper.setting):
        differing.append(f"ablation (none, {paper.setting})")
    return tuple(differing)


def nearest_published(ours: Measured, papers: Iterable[Published]) -> list[Comparison]:
    """Compare a measured number with the published ones under the most similar conditions.

    These are up to `MAX_EXACT` numbers under equal conditions, else up to `MAX_NEAREST` of those
    with the fewest differences, and none if there are more than `MAX_DIFFERENCES`.
    """
    pairs = [Comparison(ours, p, differences(ours, p)) for p in papers if comparable(ours, p)]
    if not pairs:
        return []
    fewest = min(len(pair.differs) for pair in pairs)
    if fewest > MAX_DIFFERENCES:
        return []
    nearest = sorted((p for p in pairs if len(p.differs) == fewest), key=_distance)
    shown = {(p.paper.source, p.paper.spc, p.paper.value, p.differs): p for p in reversed(nearest)}
    unique = sorted(shown.values(), key=_distance)
    return unique[: MAX_NEAREST if fewest else MAX_EXACT]


def _distance(pair: Comparison) -> tuple[float, ...]:
    """Sort key of pairs with equally many differences: smaller is nearer."""
    ours, paper = pair.ours, pair.paper
    return (
        float(ours.protocol != paper.protocol),
        _log_ratio(ours.epsilon, paper.epsilon),
        float(ours.classifier != paper.classifier),
        float(_ablation(paper.setting)),
        _log_ratio(ours.spc, paper.spc),
    )


def _log_ratio(one: float | None, other: float | None) -> float:
    if one is None or other is None or math.isinf(one) or math.isinf(other):
        return 0.0 if one == other else 9.0
    return abs(math.log(one / other))


def _ablation(setting: str) -> bool:
    """True if a published row belongs to an ablation or a parameter study."""
    return setting.startswith(("no ", "best over", "sigma", "L=", "I=", "control"))


def select_comparisons(ours: Sequence[Measured], papers: Sequence[Published]) -> list[Comparison]:
    """The comparisons of a run: per method, budget and quantity those with the fewest differences.

    Otherwise thirteen classifiers would each be compared with a single published ConvNet.
    """
    groups: dict[tuple[str, float, str], list[list[Comparison]]] = {}
    for number in ours:
        if pairs := nearest_published(number, papers):
            key = (number.method, number.epsilon, quantity(number.metric))
            groups.setdefault(key, []).append(pairs)
    chosen: list[Comparison] = []
    for group in groups.values():
        fewest = min(len(pairs[0].differs) for pairs in group)
        best = [pairs for pairs in group if len(pairs[0].differs) == fewest]
        kept = best if fewest == 0 or len(best) == 1 else best[:MAX_NEAREST]
        chosen += [pair for pairs in kept for pair in pairs]
    return chosen
