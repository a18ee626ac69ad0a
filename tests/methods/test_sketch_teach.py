"""The parts of sketch_teach against naive ones; what every method promises is tested elsewhere."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedsynth.core import Budget, DataFacts, PartyFacts, Request, SyntheticSet, Task
from fedsynth.data import datasets
from fedsynth.errors import UserError
from fedsynth.methods import method
from fedsynth.methods._lesson import (
    Lesson,
    every_place,
    others_than,
    portrayed,
    shown_negatives,
)
from fedsynth.methods._sketch_settings import Recipe, SketchTeachConfig
from fedsynth.methods._teacher import (
    FeatureMap,
    Head,
    first_head,
    gradient_factors,
    multipliers,
    places_in,
)
from fedsynth.methods.sketch_teach import rows_and_places
from fedsynth.methods.sketch_teach_joint import _rows, features_digest, keep_features
from fedsynth.models.poolnet import PoolNet
from fedsynth.models.scattering import scattering
from fedsynth.privacy.accounting import epsilon
from fedsynth.privacy.private import Private, Records
from fedsynth.randomness import default_seed, torch_generator
from fedsynth.settings import build
from tests.methods.test_portrait import asker

CPU = torch.device("cpu")
SHAPES = datasets.info("shapes").facts


def task(data: str, records: int = 60_000, classes: int = 10) -> Task:
    held = tuple(range(classes))
    facts = PartyFacts(0, records, dict.fromkeys(held, records // classes))
    return Task(datasets.info(data).facts, 0, 1, (facts,), held, held)


def recipe(data: str, eps: float, records: int = 60_000, **changes: object) -> Recipe:
    cfg = build(SketchTeachConfig, changes)
    return Recipe.of(cfg, task(data, records), Budget(eps, 1e-5), records)


# The teacher


def rows_and_labels(n: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(n, 7, generator=generator), torch.arange(n) % 4


def test_gradient_factors_are_the_gradients_of_single_records() -> None:
    rows, places = rows_and_labels()
    weights = torch.randn(4, 7, generator=torch.Generator().manual_seed(4))
    left, right = gradient_factors(weights, rows, places)
    for i in range(len(rows)):
        variable = weights.clone().requires_grad_()
        loss = functional.cross_entropy(rows[i : i + 1] @ variable.T, places[i : i + 1])
        (slope,) = torch.autograd.grad(loss, variable)
        torch.testing.assert_close(torch.outer(left[i], right[i]), slope, rtol=1e-4, atol=1e-6)
        product = float(left[i].norm() * right[i].norm())
        assert float(slope.norm()) == pytest.approx(product, rel=1e-4)


def test_the_head_is_a_heavy_ball_whose_second_half_is_averaged() -> None:
    head = Head(torch.tensor([[2.0]]), steps=5, rate=0.1, momentum=0.5)
    weight, velocity, kept = 2.0, 0.0, []
    for step in range(5):
        head.step(step, torch.tensor([[weight - 1.0]]))
        velocity = 0.5 * velocity + (weight - 1.0)
        weight -= 0.1 * velocity
        kept.append(weight)
    assert float(head.weights) == pytest.approx(weight)
    assert float(head.result()) == pytest.approx(sum(kept[2:]) / 3)


def test_the_first_head_agrees_with_the_logits_it_was_made_from() -> None:
    rows = torch.randn(500, 6, generator=torch.Generator().manual_seed(5))
    truth = torch.randn(3, 6, generator=torch.Generator().manual_seed(6))
    logits = rows @ truth.T + 5.0  # a constant for all classes changes no probability
    found = rows @ first_head(rows, logits).T
    torch.testing.assert_close(found.softmax(1), logits.softmax(1), rtol=0, atol=0.02)


def feature_map(with_scattering: bool = True, width: int = 4) -> tuple[FeatureMap, torch.Tensor]:
    with default_seed("features"):
        net = PoolNet(width, 3, 28).eval()
    pool = torch.rand(300, 1, 28, 28, generator=torch_generator("pool"))
    return FeatureMap.fit(net, pool, with_scattering), pool


@pytest.mark.parametrize("with_scattering", [True, False])
def test_features_are_whitened_on_the_pool_and_each_image_has_its_own(
    with_scattering: bool,
) -> None:
    features, pool = feature_map(with_scattering)
    rows = features(pool)
    assert rows.shape == (300, features.width)
    assert features.width == 4 * 2 * 9 + (729 if with_scattering else 0) + 1
    assert (rows[:, -1] == 0.3).all()
    white = rows[:, :-1]
    assert float(white.mean(0).abs().max()) < 1e-3
    assert float(white.square().sum(1).mean()) == pytest.approx(1.0, rel=1e-2)
    covariance = white.T @ white
    off = covariance - torch.diag(covariance.diagonal())
    assert float(off.abs().max()) < 1e-2 * float(covariance.diagonal().max())
    torch.testing.assert_close(features(pool[7:9]), rows[7:9], rtol=1e-3, atol=1e-4)


def test_scattering_that_is_known_already_gives_the_same_rows_and_is_computed_once(
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

    monkeypatch.setattr("fedsynth.methods.sketch_teach.scattering", counted)
    for _ in range(2):  # two draws of the noise: other features, the same records
        other, _ = feature_map(width=8)
        rows, places = rows_and_places(other, [2, 0, 1], records)
        torch.testing.assert_close(rows, other(images / 255), rtol=1e-3, atol=1e-4)
        assert places.tolist()[:3] == [1, 2, 0]
    assert calls == [40]
    without, _ = feature_map(with_scattering=False)
    assert rows_and_places(without, [0, 1, 2], records)[0].shape == (40, without.width)
    assert calls == [40]


def test_features_travel_as_arrays() -> None:
    features, pool = feature_map()
    again = FeatureMap.of_arrays(features.arrays(), 4, 3, CPU)
    assert torch.equal(again(pool[:5]), features(pool[:5]))


# Settings and budget


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
    with pytest.raises(UserError, match=r"unknown pose 'slan'. Did you mean 'slant'"):
        recipe("mnist", 1, pose="slan")
    assert recipe("fashion_mnist", 1).sketch.corner
    assert not recipe("fashion_mnist", 1, block="square").sketch.corner


def test_less_budget_fewer_records_or_more_noise_ask_for_less_detail() -> None:
    details = [recipe("mnist", eps).sketch.frequencies for eps in (0.02, 0.2, 1, 3, 10, 100)]
    assert details == sorted(details)
    assert details[0] >= 2
    assert details[-1] == 20
    assert recipe("mnist", 1, records=600).sketch.frequencies < 20
    many = Recipe.of(SketchTeachConfig(), task("mnist"), Budget(1, 1e-5), 60_000, 100)
    assert many.sketch.frequencies == recipe("mnist", 0.1).sketch.frequencies
    assert recipe("mnist", 0.1, frequencies=14, share=0.7, prior="none").sketch.frequencies == 14


@given(st.floats(0.05, 20.0), st.sampled_from(["pld", "rdp"]))
@settings(max_examples=10, deadline=None)
def test_both_releases_together_cost_the_budget(eps: float, accounting: str) -> None:
    budget = Budget(eps, 1e-5, accounting=accounting)
    share = method("sketch_teach").plan(SketchTeachConfig(), task("mnist"), budget).parties[0]
    spent = epsilon(share.event, 1e-5, accounting)
    assert eps * (1 - 1e-3) <= spent <= eps * (1 + 1e-9)


def test_the_sketch_cannot_have_everything() -> None:
    with pytest.raises(UserError, match=r"sketch_teach.share=1.0 must be at most"):
        build(SketchTeachConfig, {"share": 1.0}, "sketch_teach")
    _, teacher = multipliers(0.268, 0.999999, 60)
    assert teacher > 20 * multipliers(0.268, 0.4, 60)[1]


def test_other_shapes_are_refused_with_what_is_possible() -> None:
    other = dataclasses.replace(
        task("mnist"), data=DataFacts("mine", (3, 32, 32), 10, (0.5,) * 3, (0.5,) * 3)
    )
    with pytest.raises(UserError, match=r"data=mine: .*28x28 pixels, .* have 3x32x32.*mnist"):
        method("sketch_teach").plan(SketchTeachConfig(), other, Budget(1, 1e-5))


# The lesson


def halves(place: int) -> torch.Tensor:
    """Noise that is bright in its upper half, or in its lower one."""
    images = torch.rand(50, 1, 28, 28, generator=torch_generator("images", place))
    images[:, :, 14 * place : 14 * place + 14] *= 0.2
    return images


def lesson(earlier: SyntheticSet | None = None, labels: str = "hard", **changes: object) -> Lesson:
    small = {"pool": 20, "pool_steps": 10, "width": 4, "scattering": False, "spc": 15} | changes
    cfg = build(SketchTeachConfig, {**small, "labels": labels, "frequencies": 3})
    r = Recipe.of(cfg, task("shapes", 100, 2), Budget(10, 1e-5), 100)
    images = torch.cat([halves(0), halves(1)])
    records = Records(images, torch.tensor([3, 1]).repeat_interleave(50))
    models = portrayed(asker(records, (0.01,) * 4), r, (3, 1), records=100, key=("lesson",))
    return Lesson(cfg, r, SHAPES, models, earlier=earlier, key=(0, "lesson"), device=CPU)


def earlier_images() -> SyntheticSet:
    images = torch.rand(9, 1, 28, 28, generator=torch_generator("earlier"))
    return SyntheticSet(images, torch.tensor([8, 5, 8, 5, 8, 5, 8, 8, 8]))


def test_a_released_set_is_made_of_bytes_and_labelled_by_the_head() -> None:
    made = lesson()
    weights = made.head().weights
    out = made.released(weights)
    assert out.images.shape == (30, 1, 28, 28)
    assert out.soft is None
    assert out.images.dtype == torch.uint8
    assert not out.raw
    assert out.images.max() > 100
    places = (made.features(out.pixels()) @ weights.T).argmax(1)
    assert len(places.unique()) == 2
    assert torch.equal(torch.tensor([3, 1])[places], out.labels)
    assert torch.equal(lesson().released(weights).images, out.images)


def test_images_are_moved_where_that_is_asked_for() -> None:
    still, moved = (lesson(moved=share) for share in (0.0, 1.0))
    a, b = (made.released(made.head().weights).pixels() for made in (still, moved))
    assert a.shape == b.shape
    assert float((a - b).abs().mean()) > 0.02
    some = lesson(moved=0.5).released(still.head().weights).pixels()
    alike = (some - a).flatten(1).abs().amax(1) < 1e-6
    assert 0 < int(alike.sum()) < len(a)


def test_soft_labels_are_probabilities_over_the_classes_of_the_records() -> None:
    made = lesson(earlier_images(), labels="soft")
    assert made.order == [3, 1, 5, 8]
    out = made.released(made.head().weights)
    assert out.soft is not None
    torch.testing.assert_close(out.soft.sum(1), torch.ones(30))
    assert torch.equal(out.soft.argmax(1), out.labels)
    assert (out.soft[:, [0, 2, 4, 5, 6, 7, 8, 9]] == 0).all()


@pytest.mark.parametrize("way", ["features", "gradients"])
def test_an_optimised_set_has_as_many_of_each_class_and_soft_labels_are_its_own(way: str) -> None:
    changes = {"optimise": way, "optimise_from": 12, "optimise_steps": 2, "spc": 4}
    made = lesson(**changes)
    weights = made.head().weights
    out = made.released(weights)
    assert out.labels.tolist() in ([1] * 4 + [3] * 4, [3] * 4 + [1] * 4)
    assert out.images.dtype == torch.uint8
    assert out.soft is None
    soft = lesson(labels="soft", **changes).released(weights).soft
    assert soft is not None
    expected = torch.zeros(8, SHAPES.classes)
    expected[:, [3, 1]] = functional.softmax(made.features(out.pixels()) @ weights.T, dim=1)
    torch.testing.assert_close(soft, expected)


def test_an_optimised_set_is_small_and_its_work_is_planned() -> None:
    assert recipe("mnist", 1, optimise="features").spc == 50
    assert recipe("mnist", 1, optimise="features", spc=20).spc == 20
    for way, kind, images in (("features", "train", 500 + 213), ("gradients", "match", 500)):
        cfg = build(SketchTeachConfig, {"optimise": way})
        share = method("sketch_teach").plan(cfg, task("mnist"), Budget(1, 1e-5)).parties[0]
        assert share.bytes_up == 500 * (784 + 8)
        assert any((w.kind, w.batch) == (kind, images) for w in share.work)


@given(st.integers(0, 10_000), st.integers(2, 6))
@settings(max_examples=25, deadline=None)
def test_no_class_is_left_without_an_image(seed: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(8, classes, generator=generator)
    logits[:, 0] += 3 * (seed % 3)  # one class that wants all of them
    places = every_place(logits)
    assert set(places.tolist()) == set(range(classes))
    plain = logits.argmax(1)
    absent = classes - len(plain.unique())
    assert int((places != plain).sum()) == absent


def test_earlier_classes_weigh_as_much_as_those_of_the_records() -> None:
    shown = earlier_images()
    made = lesson(shown)
    weights = made.head().weights
    total = torch.randn(weights.shape, generator=torch.Generator().manual_seed(0))
    found = made.mean_gradient(weights, total, 100)
    rows, places = made.features(shown.images), places_in(shown.labels, made.order)
    others = torch.zeros_like(weights)
    for row, place in zip(rows, places, strict=True):
        residual = functional.softmax(weights @ row, dim=0)
        residual[place] -= 1
        matrix = torch.outer(residual, row)
        others += matrix * min(1.0, 0.1 / float(matrix.norm()))
    weight = 50 * 2 / 9  # fifty records a class; two classes in nine images
    expected = (total + weight * others) / (100 + weight * 9)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(lesson().mean_gradient(weights[:2], total[:2], 100), total[:2] / 100)


def test_only_the_first_images_of_every_earlier_class_are_shown() -> None:
    before = earlier_images()
    soft = dataclasses.replace(before, soft=torch.rand(9, 10))
    shown = shown_negatives(SketchTeachConfig(negatives=2), [soft, before])
    assert shown is not None
    assert shown.labels.tolist() == [5, 5, 8, 8]
    torch.testing.assert_close(shown.images, before.images[[1, 3, 0, 2]])
    assert shown_negatives(SketchTeachConfig(negatives=0), [before]) is None
    assert shown_negatives(SketchTeachConfig(), []) is None
    rest = others_than((8, 0), shown)
    assert rest is not None
    assert rest.labels.tolist() == [5, 5]
    assert others_than((5, 8), shown) is None


# The joint form


def home(path: Path) -> Private:
    images = torch.randint(0, 256, (6, 1, 28, 28), dtype=torch.uint8)
    facts = PartyFacts(0, 6, {0: 2, 1: 2, 2: 2})
    return Private(Records(images, torch.arange(6) % 3), facts, workshop=path, fingerprint="x")


def test_a_party_keeps_features_under_what_they_are_and_misses_what_it_was_not_sent(
    tmp_path: Path,
) -> None:
    features, _ = feature_map()
    sent = {**features.arrays(), "order": torch.tensor([2, 0, 1])}
    digest, party = features_digest(sent), home(tmp_path)
    cfg = SketchTeachConfig(width=4)
    compute = party.records.map
    with pytest.raises(UserError, match="has not been sent the features"):
        compute(lambda records: _rows(cfg, party, digest, CPU, records))
    keep_features(party, Request("teach", 2, arrays={"weights": torch.zeros(3, 4)}))
    assert not list(tmp_path.iterdir())
    other = {**sent, "centre": sent["centre"] + 1}
    keep_features(party, Request("teach", 1, arrays={"weights": torch.zeros(3, 4), **other}))
    with pytest.raises(UserError, match="has not been sent the features"):
        compute(lambda records: _rows(cfg, party, digest, CPU, records))
    keep_features(party, Request("teach", 1, arrays={"weights": torch.zeros(3, 4), **sent}))
    seen: list[tuple[Records, tuple[torch.Tensor, torch.Tensor]]] = []
    compute(lambda records: seen.append((records, _rows(cfg, party, digest, CPU, records))))
    records, (rows, places) = seen[0]
    assert torch.equal(rows, features(records.pixels()))
    assert places.tolist() == [1, 2, 0, 1, 2, 0]
