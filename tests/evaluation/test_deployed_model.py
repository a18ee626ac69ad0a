"""The deployed model is tested on every user's records, and its counts are cached."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.data.records import Records
from fedsynth.evaluation import deployed_model
from fedsynth.evaluation.deployed_model import (
    deployed_accuracy,
    per_user_accuracy,
    train_deployed_model,
)

INFO = DatasetInfo("halves", (1, 28, 28), 2, (0.2,), (0.3,))


def halves(n: int, seed: int, wrong: int = 0) -> Records:
    """Images with a bright upper or lower half, the first `wrong` of them with the wrong label."""
    labels = torch.arange(n) % 2
    noise = torch.rand(n, 1, 28, 28, generator=torch_generator("halves", seed)) * 40
    images = noise.to(torch.uint8)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, 4 + 12 * label : 12 + 12 * label, 4:24] += 200
    labels[:wrong] ^= 1
    return Records(images, labels)


@pytest.fixture(autouse=True)
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployed_model, "MAX_IMAGES", 3000)


def test_mislabelled_records_count_as_errors_of_their_user() -> None:
    net = train_deployed_model(halves(40, 0), INFO)
    result = per_user_accuracy(net, [halves(10, 1), halves(8, 2, wrong=2)], INFO)
    assert result.tested.tolist() == [10, 8]
    assert result.accuracies.tolist() == [1.0, 0.75]


def test_the_cache_depends_on_the_records(tmp_path: Path) -> None:
    users = [halves(6, 1)]
    with mock.patch.object(
        deployed_model, "train_deployed_model", wraps=train_deployed_model
    ) as train:
        first = deployed_accuracy(tmp_path, halves(20, 0), users, INFO)
        again = deployed_accuracy(tmp_path, halves(20, 0), users, INFO)
        assert train.call_count == 1
        deployed_accuracy(tmp_path, halves(20, 0), [halves(6, 2)], INFO)
        assert train.call_count == 2
    assert np.array_equal(first.correct, again.correct)
    assert np.array_equal(first.tested, again.tested)
