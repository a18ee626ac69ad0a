"""CIFAR-100's reader on small batches pickled as the published ones are."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from small_sets import put_small

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets


def batch(labels: list[int], images: np.ndarray) -> bytes:
    fields = {
        b"data": images.reshape(len(labels), -1),
        b"fine_labels": labels,
        b"coarse_labels": [0] * len(labels),
    }
    return pickle.dumps(fields, protocol=2)


def test_fine_labels_and_images_are_read(monkeypatch, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), np.uint8)
    labels = {"train": [0, 99, 5, 5], "test": [1, 2, 3, 99]}
    contents = {split: batch(found, images) for split, found in labels.items()}
    put_small(monkeypatch, tmp_path, "cifar100", contents, labels)
    for split, expected in labels.items():
        found, read = datasets.load("cifar100", split, tmp_path)
        assert (found.numpy() == images).all()
        assert read.tolist() == expected


def test_missing_files_are_named_with_their_folder(monkeypatch, tmp_path: Path) -> None:
    from fedsynth.data.fetch import fetch

    monkeypatch.setattr(fetch, "_sources", lambda _files, _folder: [])
    with pytest.raises(UserError, match=r"cifar100: lacks train, test\n.*put train, test"):
        datasets.load("cifar100", "train", tmp_path)
