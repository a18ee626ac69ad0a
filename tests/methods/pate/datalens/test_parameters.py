"""DataLens's parameters: printed epsilons and rounds, refusals, and the warning of low signal."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.enums import Relation, Unit
from fedsynth.core.errors import UserError
from fedsynth.core.plan import PARTY_CLASS_COUNTS, RECORD_CLASSES
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.datalens import DataLens
from fedsynth.methods.pate.datalens.parameters import (
    CONVENTION,
    DataLensParameters,
    affordable_rounds,
    teachers_per_party,
)
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import (
    gaussian,
    gaussian_of_exchange,
    poisson,
    repeated,
)
from fedsynth.privacy.mechanisms.votes import Assignment

MNIST = DatasetInfo("mnist", (1, 28, 28), 10, (0.1307,), (0.3081,))
TINY = DatasetInfo("tiny", (1, 8, 8), 3, (0.5,), (0.25,))
DELTA = 1e-5


def stage_of(
    data: DatasetInfo = MNIST, records: tuple[int, ...] = (60_000,), stages: int = 1
) -> Stage:
    parties = tuple(
        PartyInfo(i, n, dict.fromkeys(range(data.classes), n // data.classes))
        for i, n in enumerate(records)
    )
    classes = tuple(range(data.classes))
    return Stage(data, 0, stages, parties, classes, classes)


def budget(epsilon: float, accounting: str = CONVENTION) -> Budget:
    return Budget(epsilon, DELTA, accounting=accounting)


def paper(event: Any) -> float:
    return epsilon(event, DELTA, CONVENTION)


# Printed and worked-out numbers


def test_one_image_and_one_round_cost_as_published():
    sensitivity = 2 * math.sqrt(200)
    assert paper(gaussian(5000 / sensitivity)) == pytest.approx(0.06133, abs=5e-6)
    fifteen = repeated(gaussian(5000 / sensitivity), 15)
    assert paper(fifteen) == pytest.approx(0.10591, abs=5e-6)
    assert paper(gaussian(5000 / (sensitivity * math.sqrt(15)))) == pytest.approx(paper(fifteen))


@pytest.mark.parametrize(
    ("target", "settings", "images", "rounds", "spent"),
    [
        (1.0, {}, 15, 86, 0.99571),
        (10.0, {}, 15, 109, 9.96889),
        (10.0, {"entries": 350, "sigma": 1000.0}, 15, 146, 9.96964),
        (10.0, {"entries": 350, "sigma": 900.0}, 15, 118, 9.95616),
    ],
)
def test_the_budget_pays_for_the_published_number_of_rounds(
    target, settings, images, rounds, spent
):
    parameters = DataLensParameters.of(DataLensConfig(**settings), stage_of(), budget(target))
    assert (parameters.images, parameters.rounds) == (images, rounds)
    assert sum(parameters.teachers.values()) == 4000
    assert paper(parameters.event) == pytest.approx(spent, abs=5e-6)
    assert paper(parameters.paper_event) == pytest.approx(spent, abs=5e-6)


@pytest.mark.parametrize(
    ("target", "entries", "sigma", "rounds", "spent"),
    [(1.0, 700, 9000.0, 44, 0.99304), (10.0, 500, 700.0, 27, 9.7887)],
)
def test_published_rounds_of_celeba(target, entries, sigma, rounds, spent):
    multiplier = sigma / (2 * math.sqrt(entries * 27))
    affordable = affordable_rounds(budget(target), multiplier=multiplier, at_most=300)
    assert affordable == (rounds, multiplier)
    assert paper(repeated(gaussian(multiplier), rounds)) == pytest.approx(spent, abs=5e-5)


def test_one_more_round_would_be_too_much_and_the_exact_count_is_smaller():
    parameters = DataLensParameters.of(DataLensConfig(), stage_of(), budget(1.0))
    assert paper(repeated(gaussian(parameters.multiplier), 87)) == pytest.approx(1.00168, abs=5e-6)
    assert epsilon(parameters.event, DELTA) == pytest.approx(0.7381, abs=5e-5)


@pytest.mark.parametrize(("target", "true"), [(1.0, 1.58), (10.0, 20.4)])
def test_the_published_partition_gives_two_teachers_to_some_images(target, true):
    """Then the sensitivity is twice the stated one."""
    parameters = DataLensParameters.of(DataLensConfig(), stage_of(), budget(target))
    twice = repeated(gaussian(parameters.multiplier / 2), parameters.rounds)
    assert epsilon(twice, DELTA) == pytest.approx(true, rel=0.01)


@pytest.mark.parametrize(
    ("sigma", "batch", "target", "steps"),
    [(8.2, 128, 0.05, 3524), (3.4, 512, 0.2, 448), (1.8, 512, 1.0, 2193)],
)
def test_the_steps_of_its_gaussian_mechanism_baseline(sigma, batch, target, steps):
    step = poisson(batch / 60_000, gaussian(sigma))
    assert epsilon(repeated(step, steps), DELTA, "rdp_improved_2000") <= target
    assert epsilon(repeated(step, steps + 1), DELTA, "rdp_improved_2000") > target


def test_settings_come_from_the_data_set_and_the_nearer_budget():
    fashion = dataclasses.replace(MNIST, name="fashion_mnist")
    parameters = DataLensParameters.of(DataLensConfig(), stage_of(fashion), budget(1.0))
    assert (parameters.entries, parameters.sigma, parameters.beta) == (
        200,
        pytest.approx(5000),
        0.9,
    )
    parameters = DataLensParameters.of(DataLensConfig(), stage_of(fashion), budget(10.0))
    assert (parameters.entries, parameters.beta, parameters.latent) == (350, 0.27, 64)


@pytest.mark.parametrize("most", [5, 40])
def test_a_limit_on_rounds_lowers_the_noise(most):
    stage = stage_of()
    free = DataLensParameters.of(DataLensConfig(), stage, budget(1.0, "pld"))
    parameters = DataLensParameters.of(DataLensConfig(rounds=most), stage, budget(1.0, "pld"))
    assert (parameters.rounds, free.rounds > 86) == (most, True)
    assert parameters.sigma < 5000
    assert epsilon(parameters.event, DELTA) == pytest.approx(1.0, rel=1e-3)
    assert epsilon(parameters.event, DELTA) <= 1.0 + 1e-9


@pytest.mark.parametrize("compression", ["none", "d2p", "sketch"])
def test_the_published_count_stays_within_the_budget(compression):
    cfg = DataLensConfig(compression=compression, sigma=9e4)
    parameters = DataLensParameters.of(cfg, stage_of(), budget(1.0))
    assert paper(parameters.event) <= 1.0
    assert paper(parameters.paper_event) <= 1.0 + 1e-9


def test_too_little_noise_for_a_single_round_is_refused_with_a_sufficient_one():
    with pytest.raises(UserError, match=r"at least (\d+)") as refused:
        DataLensParameters.of(DataLensConfig(sigma=100.0), stage_of(), budget(1.0))
    least = float(str(refused.value).split("at least ")[1].split(",")[0])
    assert DataLensParameters.of(DataLensConfig(sigma=least), stage_of(), budget(1.0)).rounds >= 1
    with pytest.raises(UserError, match="784 numbers"):
        DataLensParameters.of(DataLensConfig(entries=785), stage_of(), budget(1.0))


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12), st.integers(1, 2000))
@settings(max_examples=30, deadline=None)
def test_every_party_gets_its_share_of_the_teachers(records, teachers):
    assigned = teachers_per_party(teachers, stage_of(TINY, tuple(records)))
    wanted = min(max(teachers, len(records)), sum(records))
    assert min(assigned.values()) >= 1
    assert wanted <= sum(assigned.values()) <= wanted + len(records)
    for party, n in enumerate(records):
        assert abs(assigned[party] - wanted * n / sum(records)) <= 1


def test_stages_share_the_teachers():
    assert sum(teachers_per_party(4000, stage_of(records=(12_000,), stages=5)).values()) == 800


def test_for_users_every_party_is_one_teacher():
    stage = stage_of(records=(200,) * 300)
    users = Budget(1.0, DELTA, unit=Unit.USER)
    parameters = DataLensParameters.of(DataLensConfig(rounds=5), stage, users)
    assert set(parameters.teachers.values()) == {1}
    assert parameters.images == 30
    assert epsilon(parameters.event, DELTA) <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("changes", "parties", "texts"),
    [
        # 5 / 5000: hardly anything but noise, two-sided tail at 0.7 * 0.001 deviations
        ({"teachers": 5, "sigma": 5000.0, "rounds": 80}, 5, ("ratio is 0.00045 ", "100% of all")),
        ({"teachers": 1000, "sigma": 5000.0, "rounds": 80}, 1, ("ratio is 0.2 ", "89% of all")),
        (
            {"teachers": 1000, "sigma": 5000.0, "rounds": 80, "noise_at": "aggregate"},
            4,
            ("ratio is 0.2 ",),
        ),
        ({"teachers": 4000}, 1, ()),
    ],
)
def test_a_plan_with_few_teachers_warns_of_low_signal(changes, parties, texts):
    stage = stage_of(records=(60_000 // parties,) * parties)
    cfg = DataLensConfig(beta=0.7, **changes)
    warnings = DataLens().plan(cfg, stage, budget(1.0, "pld")).warnings
    assert bool(warnings) == bool(texts)
    assert all(text in warnings[0] for text in texts)


# Teachers with equally many records of each class

EXCHANGE = Budget(1.0, DELTA, relation=Relation.REPLACE_ONE, accounting=CONVENTION)


def test_dealt_by_class_the_published_rounds_hold_for_an_exchange():
    """The published sensitivity is that of one teacher, which by hash an exchange exceeds."""
    dealt = DataLensConfig(assignment=Assignment.STRATIFIED)
    found = DataLensParameters.of(dealt, stage_of(), EXCHANGE)
    assert (found.rounds, found.sigma) == (86, pytest.approx(5000))
    assert found.event == repeated(gaussian_of_exchange(found.multiplier), 86)
    spent = epsilon(found.event, DELTA, CONVENTION, Relation.REPLACE_ONE)
    assert spent == pytest.approx(0.99571, abs=5e-6)
    assert epsilon(found.event, DELTA) == math.inf
    hashed = DataLensParameters.of(DataLensConfig(), stage_of(), EXCHANGE)
    assert hashed.rounds < 86 / 3


@pytest.mark.parametrize("accounting", ["pld", "rdp", CONVENTION])
def test_by_class_the_same_rounds_need_half_the_noise_and_use_up_the_budget(accounting):
    exchange = dataclasses.replace(EXCHANGE, accounting=accounting)
    both = [
        DataLensParameters.of(DataLensConfig(assignment=rule, rounds=5), stage_of(), exchange)
        for rule in (Assignment.STRATIFIED, Assignment.HASHED)
    ]
    assert both[0].sigma == pytest.approx(both[1].sigma / 2, rel=1e-3)
    for found in both:
        spent = epsilon(found.event, DELTA, accounting, Relation.REPLACE_ONE)
        assert 0.99 < spent <= 1.0 + 1e-6


def test_by_class_other_guarantees_than_for_an_exchanged_record_are_refused():
    dealt = DataLensConfig(assignment=Assignment.STRATIFIED)
    with pytest.raises(UserError, match="relation=add_remove: one record less moves all later"):
        DataLensParameters.of(dealt, stage_of(), budget(1.0))
    with pytest.raises(UserError, match="with unit=user"):
        DataLensParameters.of(dealt, stage_of(), dataclasses.replace(EXCHANGE, unit=Unit.USER))


def test_by_class_the_plan_names_what_it_treats_as_public():
    dealt = DataLensConfig(assignment=Assignment.STRATIFIED)
    assumed = DataLens().plan(dealt, stage_of(), EXCHANGE).assumes
    assert {PARTY_CLASS_COUNTS, RECORD_CLASSES} <= set(assumed)
    assert RECORD_CLASSES not in DataLens().plan(DataLensConfig(), stage_of(), EXCHANGE).assumes
