"""Matching names exactly the differences and selects the nearest comparable numbers."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.experiment.evaluation_data import HOLD_OUT, TEST_DATA
from fedsynth.report.paper_comparison.matching import (
    ALONE,
    MAX_DIFFERENCES,
    Measured,
    comparable,
    differences,
    family,
    nearest_published,
    select_comparisons,
)
from fedsynth.report.paper_comparison.numbers import Published

DATA, METHODS = ("mnist", "fashion_mnist"), ("psg", "psg_joint", "ndpdc")
CLASSIFIERS, PROTOCOLS = ("convnet", "mlp", "average"), ("P", "D", "L")
METRICS = ("accuracy", "accuracy_optimistic_max", "calibrated_accuracy")
EPSILONS = (1.0, 10.0, math.inf)

ours_made = st.builds(
    Measured,
    st.sampled_from(DATA),
    st.sampled_from(METHODS),
    st.sampled_from(EPSILONS),
    st.sampled_from((ALONE, "5 parties in turn")),
    st.sampled_from(CLASSIFIERS),
    st.sampled_from(PROTOCOLS),
    st.sampled_from(METRICS),
    st.floats(0, 1),
    spc=st.sampled_from((None, 10.0, 20.0)),
    changed=st.sampled_from(("", "runs=20")),
)


@st.composite
def printed(draw: st.DrawFn) -> Published:
    return Published(
        "a paper",
        draw(st.sampled_from("1234")),
        draw(st.sampled_from(DATA)),
        method := draw(st.sampled_from(("psg", "ndpdc"))),
        method.upper(),
        draw(st.sampled_from(("", "no top-k"))),
        draw(st.sampled_from((None, *EPSILONS))),
        1e-5,
        draw(st.sampled_from((None, 10, 20))),
        draw(st.sampled_from(CLASSIFIERS)),
        draw(st.sampled_from(PROTOCOLS)),
        draw(st.sampled_from(METRICS)),
        draw(st.sampled_from((0.5, 0.6, 0.7))),
        None,
        "",
    )


def unequal(ours: Measured, paper: Published) -> set[str]:
    """The dimensions that differ, by plain comparison."""
    found = {
        name
        for name in ("method", "epsilon", "protocol", "classifier")
        if getattr(ours, name) != getattr(paper, name)
    }
    found |= {"epoch"} if ours.metric != paper.metric else set()
    found |= {"images per class"} if ours.spc is not None and ours.spc != paper.spc else set()
    found |= {"settings"} if ours.changed else set()
    found |= {"ablation"} if paper.setting else set()
    return found | ({"parties"} if ours.parties != ALONE else set())


@settings(max_examples=80, deadline=None)
@given(ours_made, printed())
def test_exactly_the_differences_are_named(ours: Measured, paper: Published) -> None:
    assert {text.split(" (")[0] for text in differences(ours, paper)} == unequal(ours, paper)


@settings(max_examples=80, deadline=None)
@given(ours_made, st.lists(printed(), max_size=12))
def test_the_nearest_numbers_are_selected(ours: Measured, papers: list[Published]) -> None:
    pairs = nearest_published(ours, papers)
    candidates = [p for p in papers if comparable(ours, p)]
    fewest = min((len(unequal(ours, p)) for p in candidates), default=99)
    assert bool(pairs) == (fewest <= MAX_DIFFERENCES)
    for pair in pairs:
        assert pair.paper in candidates
        assert len(pair.differs) == fewest
        assert (pair.paper.data, pair.paper.method) == (ours.data, family(ours.method))
        assert (pair.paper.epsilon == math.inf) == (ours.epsilon == math.inf)
        assert ("calibrated" in pair.paper.metric) == ("calibrated" in ours.metric)
    shown, reverse = (
        [(p.paper.spc, p.paper.value, p.differs) for p in found]
        for found in (pairs, nearest_published(ours, papers[::-1]))
    )
    assert len(set(shown)) == len(shown)
    assert len(shown) > 1 or shown == reverse


@settings(max_examples=40, deadline=None)
@given(ours_made, st.lists(printed(), max_size=8))
def test_an_exact_counterpart_is_never_passed_over(ours: Measured, papers: list[Published]) -> None:
    ours = replace(ours, method=family(ours.method), parties=ALONE, spc=20.0, changed="")
    exact = Published(
        "the paper", "1", ours.data, ours.method, "X", "", ours.epsilon, 1e-5, 20,
        ours.classifier, ours.protocol, ours.metric, 0.123, None, "",
    )  # fmt: skip
    pairs = nearest_published(ours, [*papers, exact])
    assert pairs[0].differs == ()
    assert all(pair.differs == () for pair in pairs)


@settings(max_examples=40, deadline=None)
@given(st.lists(ours_made, max_size=8), st.lists(printed(), max_size=10))
def test_a_run_shows_the_best_of_each_method_and_budget(
    numbers: list[Measured], papers: list[Published]
) -> None:
    chosen = select_comparisons(numbers, papers)
    for pair in chosen:
        rivals = [
            other
            for number in numbers
            if (number.method, number.epsilon) == (pair.ours.method, pair.ours.epsilon)
            and ("calibrated" in number.metric) == ("calibrated" in pair.ours.metric)
            for other in nearest_published(number, papers)
        ]
        assert len(pair.differs) == min(len(other.differs) for other in rivals)
    exact = [n for n in numbers if any(not p.differs for p in nearest_published(n, papers))]
    assert all(any(pair.ours == n for pair in chosen) for n in exact)


def test_a_best_epoch_is_named_with_what_it_was_chosen_on() -> None:
    ours = Measured("mnist", "psg", 10.0, ALONE, "convnet", "P", "accuracy_optimistic_max", 0.9)
    last = Published(
        "a paper", "4", "mnist", "psg", "PSG", "", 10.0, 1e-5, 10, "convnet", "P", "accuracy",
        0.949, None, "",
    )  # fmt: skip
    best = replace(last, metric="accuracy_optimistic_max")
    held = replace(ours, tested=HOLD_OUT)
    assert differences(ours, last) == ("epoch (best epoch on test data, last epoch)",)
    assert differences(held, last) == (
        "epoch (best epoch on a hold-out of the training data, last epoch)",
    )
    for tested in (TEST_DATA, HOLD_OUT):
        measured = replace(ours, metric="accuracy", tested=tested)
        assert differences(measured, best) == ("epoch (last epoch, best epoch on test data)",)


def test_nearer_images_a_class_come_first() -> None:
    ours = Measured("mnist", "psg", 10.0, ALONE, "convnet", "P", "accuracy", 0.9, spc=20)
    base = Published(
        "a paper", "4", "mnist", "psg", "PSG", "", 10.0, 1e-5, 10, "convnet", "P", "accuracy",
        0.949, None, "",
    )  # fmt: skip
    rows = [replace(base, spc=spc, value=spc / 100) for spc in (10, 50, 20, 1)]
    assert [pair.paper.spc for pair in nearest_published(ours, rows)] == [20]
    between = replace(ours, spc=12)
    assert [pair.paper.spc for pair in nearest_published(between, rows)] == [10, 20]
    assert nearest_published(between, rows)[0].differs == ("images per class (12, 10)",)
    knob = replace(base, spc=20, value=0.5, setting="no top-k")
    assert nearest_published(ours, [knob, *rows])[0].paper.value == 0.2
