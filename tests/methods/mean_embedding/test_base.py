"""Mean embeddings: what every feature map promises, pooled means, and the generator."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.methods.mean_embedding.base import (
    EmbeddingMethod,
    FeatureMap,
    GeneratorTrainer,
    pooled_means,
)
from fedsynth.methods.mean_embedding.dp_merf import DPMERFConfig, RandomFourier
from fedsynth.methods.mean_embedding.output_space import output_space
from fedsynth.methods.registry import method

FACTS = DatasetInfo("tiny", (1, 4, 4), 3, (0.5,), (0.25,))
SMALL = {
    "dp_merf": {"features": 12},
    "dp_ntk": {"hidden": 6},
    "dp_hp": {"order": 3, "product_order": 2, "pairs": 5},
}


def pixels(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand((n, 1, 4, 4), generator=torch.Generator().manual_seed(seed))


def feature_map(name: str, seed: int = 0) -> tuple[FeatureMap, int]:
    some = method(name)
    assert isinstance(some, EmbeddingMethod)
    cfg = some.Config(**SMALL[name])
    return some.features(cfg, FACTS, seed), some.width(cfg, FACTS)


@pytest.mark.parametrize("name", SMALL)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.01, 1.0]))
@settings(max_examples=15, deadline=None)
def test_no_image_has_features_longer_than_one(name, seed, brightness):
    features, width = feature_map(name, seed)
    rows = features(pixels(6, seed) * brightness)
    assert rows.shape == (6, width)
    assert torch.isfinite(rows).all()
    assert rows.norm(dim=1).max() <= 1 + 1e-5


@pytest.mark.parametrize("name", SMALL)
def test_weighted_sums_are_those_of_the_rows(name):
    features, _ = feature_map(name)
    generator = torch.Generator().manual_seed(1)
    shares = torch.rand((5, 3), generator=generator)
    expected = torch.stack(
        [sum(s * row for s, row in zip(c, features(pixels(5)), strict=True)) for c in shares.t()]
    )
    torch.testing.assert_close(
        features.weighted_sums(pixels(5), shares), expected, rtol=1e-4, atol=1e-6
    )


def test_pooling_is_the_mean_over_all_records():
    counts = [{0: 2, 3: 4}, {1: 1, 3: 5}]
    shares = [PartyInfo(k, sum(c.values()), c) for k, c in enumerate(counts)]
    generator = torch.Generator().manual_seed(0)
    means = [torch.randn((2, 6), generator=generator) for _ in counts]
    pooled = pooled_means(means, shares, (3, 0, 1))
    torch.testing.assert_close(pooled[0], (6 * means[0][1] + 6 * means[1][1]) / 12)
    torch.testing.assert_close(pooled[1], 6 * means[0][0] / 12)
    torch.testing.assert_close(pooled[2], 6 * means[1][0] / 12)


def test_training_brings_the_generator_closer_to_the_embedding():
    data = DatasetInfo("tiny", (1, 8, 8), 2, (0.5,), (0.25,))
    phi = RandomFourier(64, 200, 8.0, ("train",))
    targets = torch.zeros(2, 1, 8, 8)
    targets[0, :, :4], targets[1, :, 4:] = 1.0, 1.0
    wanted = phi(targets) / 2
    cfg = DPMERFConfig(steps=80, gen_batch=32, spc=40)
    trainer = GeneratorTrainer(cfg, output_space(data), torch.tensor([0.5, 0.5]), ("train",))

    def distance() -> float:
        found = trainer.sample((7, 5))
        rows = phi(found.images)
        chosen = F.one_hot((found.labels == 5).long(), 2).float()
        return (wanted - chosen.t() @ rows / len(rows)).norm().item()

    before = distance()
    for step in range(cfg.steps):
        trainer.step(step, phi, wanted)
    assert distance() < 0.3 * before
    found = trainer.sample((7, 5))
    for name, target in zip((7, 5), targets, strict=True):
        assert (found.images[found.labels == name].mean(0) - target).abs().mean() < 0.2


def test_with_noised_weights_every_class_counts_by_its_own_mean():
    """A class of a hundredth is learnt as well as one of a half."""
    data = DatasetInfo("tiny", (1, 8, 8), 2, (0.5,), (0.25,))
    phi = RandomFourier(64, 200, 8.0, ("rare",))
    targets = torch.zeros(2, 1, 8, 8)
    targets[1, :, 4:] = 1.0
    shares = torch.tensor([0.97, 0.03])
    cfg = DPMERFConfig(steps=120, gen_batch=64, spc=200, labels="noised")
    trainer = GeneratorTrainer(cfg, output_space(data), shares, ("rare",))
    for step in range(cfg.steps):
        trainer.step(step, phi, phi(targets) * shares[:, None])
    found = trainer.sample((0, 1))
    assert (found.images[found.labels == 1].mean(0) - targets[1]).abs().mean() < 0.2


def test_images_follow_the_class_weights_and_no_class_is_left_out():
    cfg = DPMERFConfig(spc=10)
    trainer = GeneratorTrainer(
        cfg,
        output_space(DatasetInfo("tiny", (1, 8, 8), 4, (0.5,), (0.25,))),
        torch.tensor([0.7, 0.2, 0.1, 0.0]),
        ("weights",),
    )
    assert Counter(trainer.sample((3, 0, 1, 2)).labels.tolist()) == {3: 28, 0: 8, 1: 4, 2: 1}
