"""What follows from the sketch: pool, features, released set."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.settings import build
from fedsynth.core.types import Budget
from fedsynth.data import registry as datasets
from fedsynth.methods.sketch_teach.config import Recipe, SketchTeachConfig
from fedsynth.methods.sketch_teach.linear_teacher import places_in
from fedsynth.methods.sketch_teach.synthesis import (
    SetSynthesizer,
    others_than,
    portrayed,
    shown_negatives,
)
from fedsynth.privacy.party_data import Records
from tests.methods.sketch_teach.test_class_model import asker
from tests.methods.sketch_teach.test_config import stage

CPU = torch.device("cpu")
SHAPES = datasets.find("shapes").info


def halves(place: int) -> torch.Tensor:
    """Noise that is bright in its upper half, or in its lower one."""
    images = torch.rand(50, 1, 28, 28, generator=torch_generator("images", place))
    images[:, :, 14 * place : 14 * place + 14] *= 0.2
    return images


def lesson(
    earlier: SyntheticSet | None = None, labels: str = "hard", **changes: object
) -> SetSynthesizer:
    small = {"pool": 20, "pool_steps": 10, "width": 4, "scattering": False, "spc": 15} | changes
    cfg = build(SketchTeachConfig, {**small, "labels": labels, "frequencies": 3})
    r = Recipe.of(cfg, stage("shapes", 100, 2), Budget(10, 1e-5), 100)
    images = torch.cat([halves(0), halves(1)])
    records = Records(images, torch.tensor([3, 1]).repeat_interleave(50))
    models = portrayed(asker(records, (0.01,) * 4), r, (3, 1), records=100, key=("lesson",))
    return SetSynthesizer(cfg, r, SHAPES, models, earlier=earlier, key=(0, "lesson"), device=CPU)


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
