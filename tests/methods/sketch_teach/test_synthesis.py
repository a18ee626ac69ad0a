"""Tests of what follows from the sketch: pool, features, released set."""

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
from fedsynth.data.records import Records, class_indices
from fedsynth.methods.sketch_teach.config import ReleaseParameters, SketchTeachConfig
from fedsynth.methods.sketch_teach.synthesis import (
    SetSynthesizer,
    estimate_class_models,
    negative_examples,
    without_classes,
)
from tests.methods.sketch_teach.test_class_model import asker
from tests.methods.sketch_teach.test_config import stage

CPU = torch.device("cpu")
SHAPES = datasets.find("shapes").info


def halves(place: int) -> torch.Tensor:
    """Noise that is bright in its upper half, or in its lower one."""
    images = torch.rand(50, 1, 28, 28, generator=torch_generator("images", place))
    images[:, :, 14 * place : 14 * place + 14] *= 0.2
    return images


def synthesizer(
    earlier: SyntheticSet | None = None, labels: str = "hard", **changes: object
) -> SetSynthesizer:
    small = {"pool": 20, "pool_steps": 10, "width": 4, "scattering": False, "spc": 15} | changes
    cfg = build(SketchTeachConfig, {**small, "labels": labels, "frequencies": 3})
    r = ReleaseParameters.derive(cfg, stage("shapes", 100, 2), Budget(10, 1e-5), 100)
    images = torch.cat([halves(0), halves(1)])
    records = Records(images, torch.tensor([3, 1]).repeat_interleave(50))
    models = estimate_class_models(
        asker(records, (0.01,) * 4), r, (3, 1), records=100, key=("lesson",)
    )
    return SetSynthesizer(cfg, r, SHAPES, models, earlier=earlier, key=(0, "lesson"), device=CPU)


def earlier_images() -> SyntheticSet:
    images = torch.rand(9, 1, 28, 28, generator=torch_generator("earlier"))
    return SyntheticSet(images, torch.tensor([8, 5, 8, 5, 8, 5, 8, 8, 8]))


def test_a_set_consists_of_bytes_labelled_by_the_head() -> None:
    synthesis = synthesizer()
    weights = synthesis.head().weights
    out = synthesis.synthesize(weights)
    assert out.images.shape == (30, 1, 28, 28)
    assert out.soft is None
    assert out.images.dtype == torch.uint8
    assert not out.raw
    assert out.images.max() > 100
    places = (synthesis.features(out.pixels()) @ weights.T).argmax(1)
    assert len(places.unique()) == 2
    assert torch.equal(torch.tensor([3, 1])[places], out.labels)
    assert torch.equal(synthesizer().synthesize(weights).images, out.images)


def test_the_share_of_moved_images() -> None:
    still, moved = (synthesizer(moved=share) for share in (0.0, 1.0))
    a, b = (synthesis.synthesize(synthesis.head().weights).pixels() for synthesis in (still, moved))
    assert a.shape == b.shape
    assert float((a - b).abs().mean()) > 0.02
    some = synthesizer(moved=0.5).synthesize(still.head().weights).pixels()
    alike = (some - a).flatten(1).abs().amax(1) < 1e-6
    assert 0 < int(alike.sum()) < len(a)


def test_soft_labels_are_probabilities_of_the_classes_of_the_models() -> None:
    synthesis = synthesizer(earlier_images(), labels="soft")
    assert synthesis.order == [3, 1, 5, 8]
    out = synthesis.synthesize(synthesis.head().weights)
    assert out.soft is not None
    torch.testing.assert_close(out.soft.sum(1), torch.ones(30))
    assert torch.equal(out.soft.argmax(1), out.labels)
    assert (out.soft[:, [0, 2, 4, 5, 6, 7, 8, 9]] == 0).all()


@pytest.mark.parametrize("way", ["features", "gradients"])
def test_an_optimised_set_is_balanced_and_has_soft_labels_of_its_own(way: str) -> None:
    changes = {"optimise": way, "optimise_from": 12, "optimise_steps": 2, "spc": 4}
    synthesis = synthesizer(**changes)
    weights = synthesis.head().weights
    out = synthesis.synthesize(weights)
    assert out.labels.tolist() in ([1] * 4 + [3] * 4, [3] * 4 + [1] * 4)
    assert out.images.dtype == torch.uint8
    assert out.soft is None
    soft = synthesizer(labels="soft", **changes).synthesize(weights).soft
    assert soft is not None
    expected = torch.zeros(8, SHAPES.classes)
    expected[:, [3, 1]] = functional.softmax(synthesis.features(out.pixels()) @ weights.T, dim=1)
    torch.testing.assert_close(soft, expected)


def test_earlier_classes_have_the_same_weight_per_class() -> None:
    negatives = earlier_images()
    synthesis = synthesizer(negatives)
    weights = synthesis.head().weights
    total = torch.randn(weights.shape, generator=torch.Generator().manual_seed(0))
    found = synthesis.mean_gradient(weights, total, 100)
    rows = synthesis.features(negatives.images)
    indices = class_indices(negatives.labels, synthesis.order)
    others = torch.zeros_like(weights)
    for row, index in zip(rows, indices, strict=True):
        residual = functional.softmax(weights @ row, dim=0)
        residual[index] -= 1
        matrix = torch.outer(residual, row)
        others += matrix * min(1.0, 0.1 / float(matrix.norm()))
    weight = 50 * 2 / 9  # fifty records per class; two classes in nine images
    expected = (total + weight * others) / (100 + weight * 9)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        synthesizer().mean_gradient(weights[:2], total[:2], 100), total[:2] / 100
    )


def test_negative_examples_are_the_first_images_of_each_earlier_class() -> None:
    before = earlier_images()
    soft = dataclasses.replace(before, soft=torch.rand(9, 10))
    negatives = negative_examples(SketchTeachConfig(negatives=2), [soft, before])
    assert negatives is not None
    assert negatives.labels.tolist() == [5, 5, 8, 8]
    torch.testing.assert_close(negatives.images, before.images[[1, 3, 0, 2]])
    assert negative_examples(SketchTeachConfig(negatives=0), [before]) is None
    assert negative_examples(SketchTeachConfig(), []) is None
    rest = without_classes((8, 0), negatives)
    assert rest is not None
    assert rest.labels.tolist() == [5, 5]
    assert without_classes((5, 8), negatives) is None
