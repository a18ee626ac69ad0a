"""The scorer: the published form, learnt from data, kept on disk by checksum; and what it says."""

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
from fedsynth.evaluation.image_quality import ImageQuality, appraise
from fedsynth.evaluation.scorer import Scorer, ScorerConfig, scorer, train_scorer

SHAPES = datasets.find("shapes").info
TINY = ScorerConfig(4, 3000)


@pytest.fixture(scope="module")
def shapes() -> dict[str, SyntheticSet]:
    return {split: SyntheticSet(*datasets.load("shapes", split)) for split in datasets.SPLITS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One place for all: trained once."""
    return tmp_path_factory.mktemp("scorers")


def test_the_published_form() -> None:
    net = Scorer(SHAPES, 64)
    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert len(norms) == 8
    assert (
        sum(p.numel() for p in net.parameters()) == 9_229_962
    )  # VGG11's, the norms being as large
    features, probabilities = net.see(torch.rand(3, 1, 28, 28))
    assert features.shape == (3, 512)
    assert torch.allclose(probabilities.sum(1), torch.ones(3))
    assert ScorerConfig().steps(60_000) == 50 * 469
    assert ScorerConfig(max_images=1280).steps(60_000) == 10


def test_it_learns_and_the_same_data_give_the_same_net(shapes: dict[str, SyntheticSet]) -> None:
    train, test = shapes["train"], shapes["test"]
    net = train_scorer(train.images, train.labels, SHAPES, ScorerConfig(4, 4000))
    _, answers = net.see(test.images)
    assert float((answers.argmax(1) == test.labels).float().mean()) > 0.4  # by chance: a tenth
    few = (train.images[:300], train.labels[:300], SHAPES, ScorerConfig(2, 300))
    one, other = train_scorer(*few), train_scorer(*few)
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_looking_changes_nothing_and_does_not_depend_on_company() -> None:
    with default_seed("scorer"):
        net = Scorer(SHAPES, 2)
    images = torch.rand(7, 1, 28, 28)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    together, _ = net.see(images)
    alone, _ = net.see(images[2:3])
    torch.testing.assert_close(together[2:3], alone, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    bright, _ = net.see(images * 5)
    clamped, _ = net.see((images * 5).clamp(0, 1))
    assert torch.equal(bright, clamped)


def test_kept_by_checksum(tmp_path: Path) -> None:
    images, labels = datasets.load("shapes", "test")
    form = ScorerConfig(2, 200)
    with mock.patch.object(scoring, "train_scorer", wraps=train_scorer) as train:
        first = scorer(tmp_path, images, labels, SHAPES, form)
        again = scorer(tmp_path, images, labels, SHAPES, form)
        assert train.call_count == 1
        for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True):
            assert torch.equal(a, b)
        scorer(tmp_path, images.flip(0), labels, SHAPES, form)
        scorer(tmp_path, images, labels, SHAPES, ScorerConfig(2, 201))
        assert train.call_count == 3
        (path, *_) = sorted(tmp_path.glob("*.npz"))
        path.write_bytes(path.read_bytes()[:-30])
        for data in (images, images.flip(0)):
            scorer(tmp_path, data, labels, SHAPES, form)
        scorer(tmp_path, images, labels, SHAPES, ScorerConfig(2, 201))
        assert train.call_count == 4  # the damaged one, whichever it was


def seen(shapes: dict[str, SyntheticSet], folder: Path, released: SyntheticSet) -> ImageQuality:
    return appraise(
        released,
        shapes["train"],
        shapes["test"],
        tuple(range(SHAPES.classes)),
        info=SHAPES,
        setting=EvaluationConfig(quality=True, scorer_width=4, scorer_images=3000),
        key=("k",),
        folder=folder,
    )


def test_real_images_look_real_and_noise_does_not(
    shapes: dict[str, SyntheticSet], folder: Path
) -> None:
    real = seen(shapes, folder, shapes["train"])
    other = seen(shapes, folder, shapes["test"])
    noise = torch.rand(400, 1, 28, 28)
    wrong = seen(shapes, folder, SyntheticSet(noise, torch.arange(400) % 10))
    assert real.fid_lite < 1e-4 * wrong.fid_lite
    assert other.fid_lite < 0.5 * wrong.fid_lite
    assert other.inception_score > wrong.inception_score
    assert real.images == real.real == len(shapes["train"].labels)
    rows = real.rows()
    assert rows["scorer_accuracy"] > 0.3
    assert {"inception_score", "inception_score_std", "fid_lite"} <= set(rows)
    assert "fid" not in rows
    assert seen(shapes, folder, shapes["test"]) == other


def test_a_distance_is_named_by_whose_weights_made_it() -> None:
    quality = ImageQuality(1.0, 0.0, 1, 2.0, 3, 4, "a scorer", 0.5, fid=7.0, fid_by="torchvision")
    assert quality.rows()["fid_torchvision"] == 7
    assert "fid" not in quality.rows()
    assert replace(quality, fid_by="torch-fidelity").rows()["fid"] == 7


def test_what_cannot_be_seen_is_refused() -> None:
    table = DatasetInfo("rows", (7, 1, 1), 2, (0.5,), (0.5,), DataKind.TABLE)
    with pytest.raises(UserError, match=r"quality=true is for images, and data=rows is a table"):
        EvaluationConfig(classifier=("mlp",), quality=True).check(table)
    with pytest.raises(UserError, match="needs square images"):
        EvaluationConfig(quality=True).check(replace(SHAPES, shape=(1, 16, 16)))
    with pytest.raises(UserError, match="scorer_width=0"):
        EvaluationConfig(scorer_width=0)
