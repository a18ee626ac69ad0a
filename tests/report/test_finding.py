"""The finding says what the numbers say, for every kind of run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from report_pages import report_data

from fedsynth.core.enums import DataKind, Relation, Unit
from fedsynth.core.plan import RECORD_CLASSES
from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.experiment.evaluation_data import HOLD_OUT
from fedsynth.report.estimates import Estimate, FinalResult
from fedsynth.report.finding import (
    finding_sentences,
    guess_bound,
    privacy_sentences,
    smallest_class,
    uncertainties,
    view_words,
    worth_sentence,
)
from fedsynth.report.report_data import ReportData
from fedsynth.report.summary import frame
from fedsynth.storage.metrics import Metric

PSG = FinalResult("psg", 1.0, Estimate(0.871, 3, 0.85, 0.892), 500)
DP_SGD = FinalResult("dp_sgd", 1.0, Estimate(0.199, 3, 0.18, 0.21))
BOUND = FinalResult("upper_bound", math.inf, Estimate(0.973, 3, 0.97, 0.976), 60_000)
TABLE = DatasetInfo("t", (3, 1, 1), 2, (0.0,), (1.0,), DataKind.TABLE)


def data(parties: int = 5, **changes: object) -> ReportData:
    infos = tuple(PartyInfo(i, 100, {0: 100}) for i in range(parties))
    return replace(report_data(), **{"parties": infos, **changes})  # type: ignore[arg-type]


def test_the_finding_of_parties_in_turn() -> None:
    assert finding_sentences([PSG, DP_SGD, BOUND], data(), 5) == [
        "Five parties that each release 100 images at ε = 1 let a receiver reach 87.1% (95% "
        "interval 85.0% to 89.2%) accuracy on the test data, with psg.",
        "Handing a dp_sgd model on reaches 19.9% (95% interval 18.0% to 21.0%).",
        "Without any privacy, upper_bound reaches 97.3% (95% interval 97.0% to 97.6%).",
    ]


def test_one_party_tables_together_and_models() -> None:
    one = finding_sentences([PSG], data(1, info=TABLE), 1)
    assert one[0].startswith("One party that releases 500 rows at ε = 1 lets a")
    together = finding_sentences([PSG], data(3), 1)
    assert together[0].startswith("Three parties that release 500 images in all at ε = 1 let")
    assert together[1:] == ["What is possible without privacy was not measured in this run."]
    models = finding_sentences([DP_SGD, replace(PSG, accuracy=Estimate(0.1, 1))], data(1), 1)
    assert models[0].startswith("One party that hands a model on at ε = 1 lets a receiver reach")
    assert models[1] == "The best release of images, by psg, reaches 10.0%."


def test_several_budgets_and_other_references() -> None:
    more = replace(PSG, epsilon=10.0, accuracy=Estimate(0.92, 1))
    noiseless = FinalResult("psg_without_noise", math.inf, Estimate(0.95, 1), 500)
    words = finding_sentences([PSG, more, noiseless], data(), 5)
    assert words[1:] == [
        "At ε = 10 it is 92.0%, with psg.",
        "psg without noise, and so without privacy, reaches 95.0%.",
    ]
    better = replace(noiseless, accuracy=Estimate(0.99, 1))
    assert "upper_bound" in finding_sentences([PSG, better, BOUND], data(), 5)[-1]


def test_the_worth_of_the_best_release_at_each_budget() -> None:
    curve = {10: 0.5, 100: 0.7, 1000: 0.9}
    more = replace(PSG, epsilon=10.0, accuracy=Estimate(0.95, 1))
    weak = replace(DP_SGD, epsilon=0.1, accuracy=Estimate(0.4, 1))
    assert worth_sentence([weak, PSG, DP_SGD, more, BOUND], curve) == [
        "Judged by this accuracy, the best private release is worth fewer than 10 real records at "
        "ε = 0.1 (dp_sgd), about 720 real records at ε = 1 (psg), at least 1,000 real records at "
        "ε = 10 (psg)."
    ]
    assert worth_sentence([PSG], {}) == []
    assert worth_sentence([BOUND], curve) == []


def test_a_hold_out_is_not_called_test_data() -> None:
    held = data(tested=HOLD_OUT)
    assert finding_sentences([PSG], held, 5)[0].endswith(
        "accuracy on a hold-out of the training data, with psg."
    )
    assert finding_sentences([BOUND], held, 5)[0].endswith(
        "accuracy on a hold-out of the training data."
    )


def test_references_only_and_nothing_at_all() -> None:
    assert finding_sentences([BOUND], data(), 5) == [
        "No private method was measured. Without privacy, upper_bound reaches 97.3% (95% interval "
        "97.0% to 97.6%) accuracy on the test data."
    ]
    assert "Nothing was evaluated" in finding_sentences([], data(), 5)[0]
    reference = frame([Metric("upper_bound", math.inf, 0, 1, "accuracy", 0.9)])
    assert "all of them are references" in privacy_sentences(data(), reference)[0]


def epsilons(*budgets: float, view: str = "server") -> list[Metric]:
    return [Metric("psg", e, 0, 1, "epsilon_pld", e, "record", "", 1e-5, view) for e in budgets]


@pytest.mark.parametrize(
    ("unit", "relation", "expected"),
    [
        (Unit.RECORD, Relation.ADD_REMOVE, "whether one record of a party took part"),
        (Unit.RECORD, Relation.REPLACE_ONE, "whether one record of a party was this one or anoth"),
        (Unit.USER, Relation.ADD_REMOVE, "whether all records of one user took part"),
        (Unit.USER, Relation.REPLACE_ONE, "whether all records of one user were these or others"),
    ],
)
def test_the_cost_names_unit_relation_and_view(unit: Unit, relation: str, expected: str) -> None:
    words = privacy_sentences(data(unit=unit, relation=relation), frame(epsilons(1.0, 10.0)))
    assert expected in words[0]
    assert "the server, which receives everything that the parties send" in words[0]
    assert words[1].startswith("ε = 1, δ = 1e-05: any conclusion from a release is at most 2.72 ")
    assert "a probability of 73.1% at most" in words[1]
    assert "22,026 times" in words[2]
    assert "99.995%" in words[2]
    assert "more than any single one" in words[-1]


def test_views_and_exchanges_are_explained() -> None:
    sums = "server that sees sums of 4 or more shares"
    of_class = data(relation="replace_one", assumptions=(RECORD_CLASSES,))
    words = privacy_sentences(of_class, frame(epsilons(1.0)))
    assert words[0].startswith(
        "Protected is whether one record of a party was this one or another of its class."
    )
    words = privacy_sentences(data(exchange="x"), frame(epsilons(1.0, view=sums)))
    assert f"The observer is a {sums} (secure aggregation) and nothing else" in words[0]
    assert any("Numbers of records are treated as public" in line for line in words)
    assert view_words("server with 2 colluding parties") == "a server with 2 colluding parties"
    assert "e^30" in " ".join(privacy_sentences(data(), frame(epsilons(30.0))))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.1])
def test_the_bound_on_guesses_is_reached_by_the_worst_mechanism(
    epsilon: float, delta: float
) -> None:
    """Against the mechanism that exhausts (epsilon, delta), summed outcome by outcome."""
    e = math.exp(epsilon)
    one = np.array([delta, (1 - delta) * e / (1 + e), (1 - delta) / (1 + e), 0.0])
    other = one[::-1]
    right = 0.5 * np.maximum(one, other).sum()
    assert guess_bound(epsilon, delta) == pytest.approx(right)


def test_what_is_uncertain_depends_on_the_run() -> None:
    single = replace(PSG, accuracy=Estimate(0.8, 1))
    words = " ".join(uncertainties([single, replace(single, method="ldpdc")], data()))
    assert "One seed: how far" in words
    assert "The best of two private methods was picked by its accuracy on the test data" in words
    assert "How the settings were chosen is not recorded" in words
    assert "smoke" not in words
    held = " ".join(uncertainties([PSG, DP_SGD], data(preset="smoke", tested=HOLD_OUT)))
    assert "Three seeds. The intervals are Student's" in held
    assert "picked by its accuracy on a hold-out of the training data itself" in held
    assert "not final ones" in held
    assert "The preset smoke" in held
    assert "not recorded" not in held
    assert "or another hold-out." in held
    assert "test data" not in held
    uneven = uncertainties([PSG, single, BOUND], data())
    assert uneven[0].startswith("One to three seeds.")
    assert not any("best of" in line for line in uncertainties([PSG, BOUND], data()))


def test_the_smallest_class_is_named_with_the_best_private_method() -> None:
    parties = (PartyInfo(0, 20, {0: 15, 1: 5}), PartyInfo(1, 10, {0: 10}))
    info = replace(TABLE, class_names=("well", "ill"))
    known = replace(data(), parties=parties, info=info)
    table = frame(
        Metric(method, epsilon, 0, 1, f"accuracy_of_class_{c}", value)
        for method, epsilon, value in (("psg", 1.0, 0.25), ("upper_bound", math.inf, 0.75))
        for c in (0, 1)
    )
    assert smallest_class([PSG, DP_SGD, BOUND], table, known) == [
        "Of the smallest class, ill (5 of 30 training records), psg at ε = 1 gets 25.0% of the "
        "test records right."
    ]
    held = smallest_class([PSG], table, replace(known, tested=HOLD_OUT))
    assert held[0].endswith("of the held-out records right.")
    assert smallest_class([BOUND], table, known) == []
    assert smallest_class([PSG], frame([]), known) == []
    equal = replace(known, parties=(PartyInfo(0, 2, {0: 1, 1: 1}),))
    assert smallest_class([PSG], table, equal) == []
