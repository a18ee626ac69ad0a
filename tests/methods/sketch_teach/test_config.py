"""How the settings of sketch_teach follow from data and budget."""

from __future__ import annotations

import dataclasses

import pytest

from fedsynth.core.errors import UserError
from fedsynth.core.settings import build
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.methods.sketch_teach.config import Recipe, SketchTeachConfig
from fedsynth.methods.sketch_teach.linear_teacher import multipliers
from fedsynth.methods.sketch_teach.sketch_teach import recipe_of


def stage(data: str, records: int = 60_000, classes: int = 10) -> Stage:
    held = tuple(range(classes))
    info = PartyInfo(0, records, dict.fromkeys(held, records // classes))
    return Stage(datasets.find(data).info, 0, 1, (info,), held, held)


def recipe(data: str, eps: float, records: int = 60_000, **changes: object) -> Recipe:
    cfg = build(SketchTeachConfig, changes)
    return Recipe.of(cfg, stage(data, records), Budget(eps, 1e-5), records)


def test_the_chosen_settings_are_those_of_the_table() -> None:
    for data, eps, expected in (
        ("mnist", 1, (20, 1, 0.4, 60, 0.8, 8000, 1.0, 0.6, 1.0, "pen")),
        ("mnist", 10, (20, 8, 0.4, 100, 0.9, 8000, 1.0, 0.6, 1.0, "pen")),
        ("fashion_mnist", 1, (24, 1, 0.7, 60, 0.8, 8000, 0.0, 0.3, 0.5, "textures")),
        ("fashion_mnist", 10, (24, 8, 0.6, 100, 0.9, 8000, 0.0, 0.3, 0.3, "textures")),
    ):
        r = recipe(data, eps)
        found = (
            r.sketch.frequencies,
            r.cells,
            r.share,
            r.steps,
            r.momentum,
            r.spc,
            r.moved,
            r.elastic,
            r.enriched,
        )
        assert (*found, r.prior.name) == pytest.approx(expected)


def test_digits_are_straightened_and_what_else_is_asked_for_is_done_or_refused() -> None:
    assert recipe("mnist", 1).sketch.upright
    assert not recipe("fashion_mnist", 1).sketch.upright
    assert not recipe("mnist", 1, pose="none").sketch.upright
    assert recipe("fashion_mnist", 1, pose="slant").sketch.upright
    with pytest.raises(UserError, match=r"pose='slan' is unknown. Did you mean 'slant'"):
        recipe("mnist", 1, pose="slan")
    assert recipe("fashion_mnist", 1).sketch.corner
    assert not recipe("fashion_mnist", 1, block="square").sketch.corner


def test_digits_made_apart_from_the_others_are_spread_wider() -> None:
    some = Recipe.of(SketchTeachConfig(), stage("mnist", classes=2), Budget(1, 1e-5), 12_000)
    assert (
        some.temperature > recipe("mnist", 1).temperature == recipe("fashion_mnist", 1).temperature
    )
    assert recipe("mnist", 10, temperature=0.8).temperature == 0.8


def test_less_budget_fewer_records_or_more_noise_ask_for_less_detail() -> None:
    details = [recipe("mnist", eps).sketch.frequencies for eps in (0.02, 0.2, 1, 3, 10, 100)]
    assert details == sorted(details)
    assert details[0] >= 2
    assert details[-1] == 20
    assert recipe("mnist", 1, records=600).sketch.frequencies < 20
    many = Recipe.of(SketchTeachConfig(), stage("mnist"), Budget(1, 1e-5), 60_000, 100)
    assert many.sketch.frequencies == recipe("mnist", 0.1).sketch.frequencies
    assert recipe("mnist", 0.1, frequencies=14, share=0.7, prior="none").sketch.frequencies == 14


def test_the_sketch_cannot_have_everything() -> None:
    with pytest.raises(UserError, match=r"sketch_teach.share=1.0 must be at most"):
        build(SketchTeachConfig, {"share": 1.0}, "sketch_teach")
    _, teacher = multipliers(0.268, 0.999999, 60)
    assert teacher > 20 * multipliers(0.268, 0.4, 60)[1]


def test_where_one_class_is_all_a_teacher_would_know_the_sketch_has_nearly_everything() -> None:
    """Nothing can be learned from records of one class, unless earlier ones are shown beside."""
    one, two = (PartyInfo(i, 6000, {c: 6000 // len(held) for c in held})
                for i, held in enumerate(((3,), (1, 2))))  # fmt: skip
    info, budget = datasets.find("mnist").info, Budget(1.0, 1e-5)
    together = Stage(info, 0, 1, (one, two), (1, 2, 3), (1, 2, 3))
    later = Stage(info, 1, 2, (one,), (3,), (1, 2, 3))
    cfg = SketchTeachConfig()
    for task_, party, changes, lone in (
        (together, one, {}, True),
        (together, two, {}, False),
        (later, one, {}, False),
        (later, one, {"negatives": 0}, True),
    ):
        found = recipe_of(dataclasses.replace(cfg, **changes), task_, party, budget)
        assert ((found.share, found.steps) == (0.99, 2)) == lone
    chosen = recipe_of(build(SketchTeachConfig, {"share": 0.5}), together, one, budget)
    assert chosen.share == 0.5
