"""Tests of sketch_teach's cost, its plan and its features; the contract tests cover the rest."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.core.settings import build
from fedsynth.core.types import Budget, DatasetInfo
from fedsynth.data.records import Records
from fedsynth.methods.registry import method
from fedsynth.methods.sketch_teach.config import SketchTeachConfig
from fedsynth.methods.sketch_teach.sketch_teach import rows_and_indices
from fedsynth.nn.transforms.scattering import scattering
from fedsynth.privacy.accounting.accountant import epsilon
from tests.methods.sketch_teach.test_config import parameters, stage
from tests.methods.sketch_teach.test_linear_teacher import feature_map


@given(st.floats(0.05, 20.0), st.sampled_from(["pld", "rdp"]))
@settings(max_examples=10, deadline=None)
def test_both_releases_together_cost_the_budget(eps: float, accounting: str) -> None:
    budget = Budget(eps, 1e-5, accounting=accounting)
    share = method("sketch_teach").plan(SketchTeachConfig(), stage("mnist"), budget).parties[0]
    spent = epsilon(share.event, 1e-5, accounting)
    assert eps * (1 - 1e-3) <= spent <= eps * (1 + 1e-9)


def test_an_optimised_set_is_small_and_its_cost_is_planned() -> None:
    assert parameters("mnist", 1, optimise="features").spc == 50
    assert parameters("mnist", 1, optimise="features", spc=20).spc == 20
    assert parameters("mnist", 1, optimise="features", optimise_from=20).spc == 20
    with pytest.raises(UserError, match=r"spc=4000 with .*optimise_from=1000.*usual: 50"):
        parameters("mnist", 1, optimise="gradients", spc=4000)
    for way, kind, images in (("features", "train", 500 + 213), ("gradients", "match", 500)):
        cfg = build(SketchTeachConfig, {"optimise": way})
        share = method("sketch_teach").plan(cfg, stage("mnist"), Budget(1, 1e-5)).parties[0]
        assert share.bytes_up == 500 * (784 + 8)
        assert any((w.kind, w.batch) == (kind, images) for w in share.cost)


def test_other_shapes_are_refused_with_what_is_allowed() -> None:
    other = dataclasses.replace(
        stage("mnist"), data=DatasetInfo("mine", (3, 32, 32), 10, (0.5,) * 3, (0.5,) * 3)
    )
    with pytest.raises(UserError, match=r"data=mine: .*28x28 pixels, .* have 3x32x32.*mnist"):
        method("sketch_teach").plan(SketchTeachConfig(), other, Budget(1, 1e-5))


def test_scattering_is_computed_once_and_gives_the_same_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, pool = feature_map()
    torch.testing.assert_close(features(pool, scattering(pool)), features(pool))
    images = (pool[:40] * 255).to(torch.uint8)
    records = Records(images, torch.arange(40) % 3)
    calls: list[int] = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        return scattering(x)

    monkeypatch.setattr("fedsynth.methods.sketch_teach.sketch_teach.scattering", counted)
    for _ in range(2):  # two draws of the noise: other features, the same records
        other, _ = feature_map(width=8)
        rows, places = rows_and_indices(other, [2, 0, 1], records)
        torch.testing.assert_close(rows, other(images / 255), rtol=1e-3, atol=1e-4)
        assert places.tolist()[:3] == [1, 2, 0]
    assert calls == [40]
    without, _ = feature_map(with_scattering=False)
    assert rows_and_indices(without, [0, 1, 2], records)[0].shape == (40, without.width)
    assert calls == [40]
