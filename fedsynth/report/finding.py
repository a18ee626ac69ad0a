"""The finding of a run in words: what was reached, what it cost in privacy, what is uncertain.

Every sentence is computed from the recorded numbers and the public facts of the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from fedsynth.core.enums import DataKind, Relation, Unit
from fedsynth.core.plan import RECORD_CLASSES, readable_view
from fedsynth.core.text import epsilon_text
from fedsynth.experiment.evaluation_data import TEST_DATA, EvaluationData
from fedsynth.methods.registry import WITHOUT_NOISE
from fedsynth.report.class_accuracies import class_accuracies, records_per_class
from fedsynth.report.estimates import FinalResult, percent
from fedsynth.report.report_data import ReportData
from fedsynth.report.worth import worth

UPPER_BOUND = "upper_bound"  # the reference that trains on all raw records
MAX_BUDGETS = 4  # explained one by one
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def number_text(number: int) -> str:
    """A number as a word up to ten.

    >>> number_text(5), number_text(1200)
    ('five', '1,200')
    """
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def finding_sentences(results: Sequence[FinalResult], data: ReportData, stages: int) -> list[str]:
    """The accuracy of a receiver at each budget, beside models handed on and references."""
    private = [result for result in results if result.private]
    references = [result for result in results if not result.private]
    if not results:
        return ["Nothing was evaluated in this run, so there is no accuracy to report."]
    sentences: list[str] = []
    for epsilon in sorted({result.epsilon for result in private}):
        group = [result for result in private if result.epsilon == epsilon]
        best = max(group, key=lambda result: result.accuracy.mean)
        sentences.append(
            _short(best) if sentences else _first(best, data, stages),
        )
        other = [result for result in group if (result.released is None) != (best.released is None)]
        if other:
            sentences.append(_other_kind(max(other, key=lambda result: result.accuracy.mean), data))
    sentences += _reference(references, data.tested, alone=not private)
    return sentences


def _first(best: FinalResult, data: ReportData, stages: int) -> str:
    parties, things = len(data.parties), _things(data)
    s = "s" if parties == 1 else ""
    owners = number_text(parties).capitalize() + (" party" if s else " parties")
    if best.released is None:
        act = f"hand{s} a model on"
    elif parties > 1 and parties == stages:
        act = f"each release {best.released / parties:,.0f} {things}"
    else:
        act = f"release{s} {best.released:,.0f} {things}{'' if s else ' in all'}"
    return (
        f"{owners if parties else 'Parties'} that {act} at ε = {epsilon_text(best.epsilon)} "
        f"let{s} a receiver reach {best.accuracy.text} accuracy on {data.tested.name}, "
        f"with {best.method}."
    )


def worth_sentence(results: Sequence[FinalResult], curve: Mapping[int, float]) -> list[str]:
    """The worth of the best private result at each budget in real records; empty if accuracies
    with some of the real records were not measured.

    Args:
        results: The results after the last stage.
        curve: Accuracy by the number of real records.
    """
    budgets = sorted({result.epsilon for result in results if result.private})
    if not curve or not budgets:
        return []
    parts = []
    for epsilon in budgets[:MAX_BUDGETS]:
        group = [result for result in results if result.epsilon == epsilon]
        best = max(group, key=lambda result: result.accuracy.mean)
        value = worth(best.accuracy.mean, curve)
        records = "record" if value.records == 1 else "records"
        parts.append(f"{value.text} real {records} at ε = {epsilon_text(epsilon)} ({best.method})")
    return [f"Judged by this accuracy, the best private release is worth {', '.join(parts)}."]


def smallest_class(
    results: Sequence[FinalResult], metrics: pd.DataFrame, data: ReportData
) -> list[str]:
    """A sentence on the class with the fewest training records, with the best private method.

    Empty if all classes have as many, or accuracies by class were not recorded."""
    counts, accuracies = records_per_class(data.parties), class_accuracies(metrics)
    private = [result for result in results if result.private]
    if len(set(counts.values())) < 2 or accuracies.empty or not private:
        return []
    label = min(counts, key=lambda c: counts[c])
    best = max(private, key=lambda result: result.accuracy.mean)
    key = (best.epsilon, best.method)
    if label not in accuracies.columns or key not in accuracies.index:
        return []
    name = data.info.class_text(label) if data.info else str(label)
    return [
        f"Of the smallest class, {name} ({counts[label]:,} of {sum(counts.values()):,} training "
        f"records), {best.method} at ε = {epsilon_text(best.epsilon)} gets "
        f"{percent(float(accuracies.loc[key, label]))} of the {data.tested.record}s right."
    ]


def _things(data: ReportData) -> str:
    table = data.info is not None and data.info.kind == DataKind.TABLE
    return "rows" if table else "images"


def _short(best: FinalResult) -> str:
    return f"At ε = {epsilon_text(best.epsilon)} it is {best.accuracy.text}, with {best.method}."


def _other_kind(other: FinalResult, data: ReportData) -> str:
    if other.released is None:
        return f"Handing a {other.method} model on reaches {other.accuracy.text}."
    return f"The best release of {_things(data)}, by {other.method}, reaches {other.accuracy.text}."


def _reference(
    references: Sequence[FinalResult], tested: EvaluationData, *, alone: bool
) -> list[str]:
    """The best accuracy without privacy: the upper bound, or the best other reference."""
    if not references:
        return ["What is possible without privacy was not measured in this run."]
    bound = [result for result in references if result.method == UPPER_BOUND]
    best = max(bound or references, key=lambda result: result.accuracy.mean)
    if alone:
        return [
            f"No private method was measured. Without privacy, {best.method} reaches "
            f"{best.accuracy.text} accuracy on {tested.name}."
        ]
    if best.method.endswith(WITHOUT_NOISE):
        name = best.method.removesuffix(WITHOUT_NOISE)
        return [f"{name} without noise, and so without privacy, reaches {best.accuracy.text}."]
    return [f"Without any privacy, {best.method} reaches {best.accuracy.text}."]


def privacy_sentences(data: ReportData, metrics: pd.DataFrame) -> list[str]:
    """The guarantee of each budget in plain words; a reference has none."""
    budgets = sorted({float(e) for e in metrics["epsilon"]} - {math.inf})
    if not budgets:
        return ["No method of this run protects anything: all of them are references."]
    sentences = [_protected(data, metrics)]
    sentences += [_bound(epsilon, data.delta) for epsilon in budgets[:MAX_BUDGETS]]
    if data.exchange:
        sentences.append(
            "Numbers of records are treated as public here. What remains hidden is then whether a "
            "record was this one or another, and the ε of that is larger: see Privacy."
        )
    sentences.append(
        "Each of these statements is about one method at one budget. A party that published the "
        "releases of several, or of several seeds, would give away more than any single one."
    )
    return sentences


def _protected(data: ReportData, metrics: pd.DataFrame) -> str:
    user = data.unit == Unit.USER
    question = "whether " + ("all records of one user" if user else "one record of a party")
    if data.relation == Relation.REPLACE_ONE:
        question += " were these or others" if user else " was this one or another"
        question += " of its class" if RECORD_CLASSES in data.assumptions else ""
    else:
        question += " took part"
    observers = " or ".join(_observers(metrics))
    return (
        f"Protected is {question}. The observer is {observers}. It may know everything else, "
        "all other records included."
    )


def _observers(metrics: pd.DataFrame) -> list[str]:
    """The observers for whom the budgets hold, as far as the run recorded them."""
    spent = metrics[metrics["metric"] == "epsilon_pld"]
    views = {str(v) for v in spent.loc[spent["epsilon"].map(math.isfinite), "view"] if v}
    return [view_words(view) for view in sorted(views)] or ["the one named under Privacy"]


def view_words(view: str) -> str:
    """An observer with what it receives."""
    known = {
        "server": "the server, which receives everything that the parties send",
        "public": "the public, which receives the end result only",
    }
    readable = readable_view(view)
    if readable in known:
        return known[readable]
    if readable.startswith("server that sees sums"):
        return f"a {readable} (secure aggregation) and nothing else"
    return f"a {readable}"


def guess_bound(epsilon: float, delta: float) -> float:
    """The largest probability of being right about two equally likely worlds.

    An attacker's advantage under (epsilon, delta) is at most (e^epsilon - 1 + 2 delta) /
    (e^epsilon + 1), and half the advantage adds to one half.

    >>> round(guess_bound(1.0, 0.0), 4), guess_bound(0.0, 0.0)
    (0.7311, 0.5)
    """
    return min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))


def _bound(epsilon: float, delta: float) -> str:
    factor = math.exp(epsilon) if epsilon < 20 else math.inf
    shown = f"{factor:,.3g}" if factor < 1000 else f"{factor:,.0f}"
    if math.isinf(factor):
        shown = f"e^{epsilon_text(epsilon)}"
    right = guess_bound(epsilon, delta)
    digits = f"{right:.1%}" if right < 0.999 else f"{right:.3%}"
    return (
        f"ε = {epsilon_text(epsilon)}, δ = {delta:g}: any conclusion from a release is at most "
        f"{shown} times as likely in one of the two cases as in the other, but for a probability "
        f"of δ. An attacker with even odds before is right with a probability of {digits} at most."
    )


def uncertainties(results: Sequence[FinalResult], data: ReportData) -> list[str]:
    """The uncertainty of these numbers: seeds, choice of the winner, choice of settings."""
    lines = _seeds(results, data.tested)
    methods: dict[float, int] = {}
    for result in results:
        if result.private:
            methods[result.epsilon] = methods.get(result.epsilon, 0) + 1
    if (most := max(methods.values(), default=0)) > 1:
        lines.append(
            f"The best of {number_text(most)} private methods was picked by its accuracy on "
            f"{data.tested.name} itself, so it is somewhat flattered."
        )
    lines.append(
        f"Tested on {data.tested.name}: numbers for choosing settings, not final ones."
        if data.tested != TEST_DATA
        else "How the settings were chosen is not recorded. If it was on these test data, the "
        "accuracies are too high; if on these private records, it is missing from ε."
    )
    if data.preset == "smoke":
        lines.append(
            "The preset smoke is made to try a run out; its accuracies do not measure the methods."
        )
    return lines


def _seeds(results: Sequence[FinalResult], tested: EvaluationData) -> list[str]:
    counts = sorted({result.accuracy.seeds for result in results})
    if not counts:
        return []
    if counts[-1] == 1:
        return [
            "One seed: how far another draw of the noise would move these numbers is not known. "
            "A ± in the table is over classifiers that were trained on the same release."
        ]
    text = number_text(counts[-1])
    if counts[0] != counts[-1]:
        text = f"{number_text(counts[0])} to {text}"
    return [
        f"{text.capitalize()} seeds. The intervals are Student's over seeds; they do not cover "
        f"another division of the records among parties or {tested.others}."
    ]
