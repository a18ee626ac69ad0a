"""Binary batches of CIFAR-10 from sheets of PNG, one image per row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedsynth.data.fetch import cifar10_png

ROWS = 3


def write_package(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, list[int]]]:
    """Sheets of three images each, as the package has them, and their labels by batch."""
    rng = np.random.default_rng(0)
    images, labels = {}, {}
    for name in cifar10_png.SHEETS:
        images[name] = rng.integers(0, 256, (ROWS, 3, 32, 32), np.uint8)
        labels[name] = rng.integers(0, 10, ROWS).tolist()
        sheet = images[name].reshape(ROWS, 3, 1024).transpose(0, 2, 1)
        Image.fromarray(np.ascontiguousarray(sheet)).save(folder / name)
    *train, test = cifar10_png.SHEETS
    (folder / "train_lables.json").write_text(json.dumps([k for n in train for k in labels[n]]))
    (folder / "test_lables.json").write_text(json.dumps(labels[test]))
    return images, labels


def test_a_record_is_its_label_and_its_three_planes(tmp_path: Path) -> None:
    images, labels = write_package(tmp_path)
    cifar10_png.rebuild(tmp_path)
    for name in cifar10_png.SHEETS:
        content = (tmp_path / name).with_suffix(".bin").read_bytes()
        records = np.frombuffer(content, np.uint8).reshape(ROWS, 3073)
        assert records[:, 0].tolist() == labels[name]
        assert (records[:, 1:].reshape(ROWS, 3, 32, 32) == images[name]).all()


def test_too_few_labels_are_an_error(tmp_path: Path) -> None:
    write_package(tmp_path)
    (tmp_path / "test_lables.json").write_text("[1]")
    with pytest.raises(ValueError, match="dimension"):
        cifar10_png.rebuild(tmp_path)
