"""SVHN's reader on small files written as the published ones are."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from small_sets import put_small

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data.datasets.svhn import parse


def matlab(labels: list[int], images: np.ndarray) -> bytes:
    """A file with X [32, 32, 3, n] and y [n, 1]."""
    file = io.BytesIO()
    savemat(file, {"X": images.transpose(2, 3, 1, 0), "y": np.array(labels, np.uint8)[:, None]})
    return file.getvalue()


def test_images_and_the_digit_zero(monkeypatch, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32), np.uint8)
    contents = {f"{split}_32x32.mat": matlab([10, 1, 9], images) for split in datasets.SPLITS}
    put_small(monkeypatch, tmp_path, "svhn", contents, {s: [0, 1, 9] for s in datasets.SPLITS})
    for split in datasets.SPLITS:
        found, labels = datasets.load("svhn", split, tmp_path)
        assert (found.numpy() == images).all()
        assert labels.tolist() == [0, 1, 9]


def test_a_foreign_file_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train_32x32\.mat is not a file of SVHN"):
        parse(b"text" * 100, "train_32x32.mat")
    file = io.BytesIO()
    savemat(file, {"Z": np.zeros(3)})
    with pytest.raises(UserError, match="is not a file of SVHN"):
        parse(file.getvalue(), "train_32x32.mat")


def test_the_public_counts_are_the_published_ones() -> None:
    known = datasets.find("svhn")
    assert (sum(known.train), sum(known.test)) == (73257, 26032)
