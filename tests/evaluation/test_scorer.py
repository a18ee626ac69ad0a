"""The scorer has the published form, learns, and is cached under a checksum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import default_seed
from fedsynth.core.types import DatasetInfo
from fedsynth.data import registry as datasets
from fedsynth.evaluation import scorer as scoring
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.scorer import Scorer, ScorerConfig, cached_scorer, train_scorer

SHAPES = datasets.find("shapes").info
TINY = ScorerConfig(4, 3000)


@pytest.fixture(scope="module")
def shapes() -> dict[str, SyntheticSet]:
    return {split: SyntheticSet(*datasets.load("shapes", split)) for split in datasets.SPLITS}


def test_the_published_form() -> None:
    net = Scorer(SHAPES, 64)
    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert len(norms) == 8
    assert (
        sum(p.numel() for p in net.parameters()) == 9_229_962
    )  # VGG11's, the norms being as large
    features, probabilities = net.features_and_probabilities(torch.rand(3, 1, 28, 28))
    assert features.shape == (3, 512)
    assert torch.allclose(probabilities.sum(1), torch.ones(3))
    assert ScorerConfig().steps(60_000) == 50 * 469
    assert ScorerConfig(max_images=1280).steps(60_000) == 10


def test_it_learns_and_equal_data_give_equal_networks(shapes: dict[str, SyntheticSet]) -> None:
    train, test = shapes["train"], shapes["test"]
    net = train_scorer(train.images, train.labels, SHAPES, ScorerConfig(4, 4000))
    _, probabilities = net.features_and_probabilities(test.images)
    assert (
        float((probabilities.argmax(1) == test.labels).float().mean()) > 0.4
    )  # by chance: a tenth
    few = (train.images[:300], train.labels[:300], SHAPES, ScorerConfig(2, 300))
    one, other = train_scorer(*few), train_scorer(*few)
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_scoring_changes_nothing_and_does_not_depend_on_the_batch() -> None:
    with default_seed("scorer"):
        net = Scorer(SHAPES, 2)
    images = torch.rand(7, 1, 28, 28)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    together, _ = net.features_and_probabilities(images)
    alone, _ = net.features_and_probabilities(images[2:3])
    torch.testing.assert_close(together[2:3], alone, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    bright, _ = net.features_and_probabilities(images * 5)
    clamped, _ = net.features_and_probabilities((images * 5).clamp(0, 1))
    assert torch.equal(bright, clamped)


def test_the_cache_depends_on_data_and_configuration(tmp_path: Path) -> None:
    images, labels = datasets.load("shapes", "test")
    config = ScorerConfig(2, 200)
    with mock.patch.object(scoring, "train_scorer", wraps=train_scorer) as train:
        first = cached_scorer(tmp_path, images, labels, SHAPES, config)
        again = cached_scorer(tmp_path, images, labels, SHAPES, config)
        assert train.call_count == 1
        for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True):
            assert torch.equal(a, b)
        cached_scorer(tmp_path, images.flip(0), labels, SHAPES, config)
        cached_scorer(tmp_path, images, labels, SHAPES, ScorerConfig(2, 201))
        assert train.call_count == 3
        (path, *_) = sorted(tmp_path.glob("*.npz"))
        path.write_bytes(path.read_bytes()[:-30])
        for data in (images, images.flip(0)):
            cached_scorer(tmp_path, data, labels, SHAPES, config)
        cached_scorer(tmp_path, images, labels, SHAPES, ScorerConfig(2, 201))
        assert train.call_count == 4  # the damaged one


def test_unsuitable_data_are_refused() -> None:
    table = DatasetInfo("rows", (7, 1, 1), 2, (0.5,), (0.5,), DataKind.TABLE)
    with pytest.raises(UserError, match=r"quality=true is for images, and data=rows is a table"):
        EvaluationConfig(classifier=("mlp",), quality=True).check(table)
    with pytest.raises(UserError, match="needs square images"):
        EvaluationConfig(quality=True).check(replace(SHAPES, shape=(1, 16, 16)))
    with pytest.raises(UserError, match="scorer_width=0"):
        EvaluationConfig(scorer_width=0)
