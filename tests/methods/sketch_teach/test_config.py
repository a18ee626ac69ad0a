"""Tests of how the numbers of a release follow from settings, data and budget."""

from __future__ import annotations

import dataclasses

import pytest

from fedsynth.core.errors import UserError
from fedsynth.core.settings import build
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.methods.sketch_teach.config import ReleaseParameters, SketchTeachConfig
from fedsynth.methods.sketch_teach.linear_teacher import multipliers
from fedsynth.methods.sketch_teach.sketch_teach import release_parameters


def stage(data: str, records: int = 60_000, classes: int = 10) -> Stage:
    held = tuple(range(classes))
    info = PartyInfo(0, records, dict.fromkeys(held, records // classes))
    return Stage(datasets.find(data).info, 0, 1, (info,), held, held)


def parameters(
    data: str, eps: float, records: int = 60_000, **changes: object
) -> ReleaseParameters:
    cfg = build(SketchTeachConfig, changes)
    return ReleaseParameters.derive(cfg, stage(data, records), Budget(eps, 1e-5), records)


def test_defaults_are_those_that_were_tuned() -> None:
    for data, eps, expected in (
        ("mnist", 1, (20, 1, 0.4, 60, 0.8, 8000, 1.0, 0.6, 1.0, "pen")),
        ("mnist", 10, (20, 8, 0.4, 100, 0.9, 8000, 1.0, 0.6, 1.0, "pen")),
        ("fashion_mnist", 1, (24, 1, 0.7, 60, 0.8, 8000, 0.0, 0.3, 0.5, "textures")),
        ("fashion_mnist", 10, (24, 8, 0.6, 100, 0.9, 8000, 0.0, 0.3, 0.3, "textures")),
    ):
        r = parameters(data, eps)
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


def test_pose_and_block_follow_from_the_data_unless_they_are_given() -> None:
    assert parameters("mnist", 1).sketch.deskew
    assert not parameters("fashion_mnist", 1).sketch.deskew
    assert not parameters("mnist", 1, pose="none").sketch.deskew
    assert parameters("fashion_mnist", 1, pose="slant").sketch.deskew
    with pytest.raises(UserError, match=r"pose='slan' is unknown. Did you mean 'slant'"):
        parameters("mnist", 1, pose="slan")
    assert parameters("fashion_mnist", 1).sketch.triangle
    assert not parameters("fashion_mnist", 1, block="square").sketch.triangle


def test_temperature_is_higher_if_parties_hold_different_digits() -> None:
    some = ReleaseParameters.derive(
        SketchTeachConfig(), stage("mnist", classes=2), Budget(1, 1e-5), 12_000
    )
    assert (
        some.temperature
        > parameters("mnist", 1).temperature
        == parameters("fashion_mnist", 1).temperature
    )
    assert parameters("mnist", 10, temperature=0.8).temperature == 0.8


def test_frequencies_decrease_with_budget_and_records_and_with_more_noise() -> None:
    details = [parameters("mnist", eps).sketch.frequencies for eps in (0.02, 0.2, 1, 3, 10, 100)]
    assert details == sorted(details)
    assert details[0] >= 2
    assert details[-1] == 20
    assert parameters("mnist", 1, records=600).sketch.frequencies < 20
    many = ReleaseParameters.derive(
        SketchTeachConfig(), stage("mnist"), Budget(1, 1e-5), 60_000, 100
    )
    assert many.sketch.frequencies == parameters("mnist", 0.1).sketch.frequencies
    assert (
        parameters("mnist", 0.1, frequencies=14, share=0.7, prior="none").sketch.frequencies == 14
    )


def test_share_of_the_sketch_is_below_one() -> None:
    with pytest.raises(UserError, match=r"sketch_teach.share=1.0 must be at most"):
        build(SketchTeachConfig, {"share": 1.0}, "sketch_teach")
    _, teacher = multipliers(0.268, 0.999999, 60)
    assert teacher > 20 * multipliers(0.268, 0.4, 60)[1]


def test_with_a_single_class_nearly_all_of_the_budget_goes_to_the_sketch() -> None:
    """A teacher learns nothing from a single class, unless there are earlier classes."""
    one, two = (PartyInfo(i, 6000, {c: 6000 // len(held) for c in held})
                for i, held in enumerate(((3,), (1, 2))))  # fmt: skip
    info, budget = datasets.find("mnist").info, Budget(1.0, 1e-5)
    together = Stage(info, 0, 1, (one, two), (1, 2, 3), (1, 2, 3))
    later = Stage(info, 1, 2, (one,), (3,), (1, 2, 3))
    cfg = SketchTeachConfig()
    for task_, party, changes, single in (
        (together, one, {}, True),
        (together, two, {}, False),
        (later, one, {}, False),
        (later, one, {"negatives": 0}, True),
    ):
        found = release_parameters(dataclasses.replace(cfg, **changes), task_, party, budget)
        assert ((found.share, found.steps) == (0.99, 2)) == single
    chosen = release_parameters(build(SketchTeachConfig, {"share": 0.5}), together, one, budget)
    assert chosen.share == 0.5
