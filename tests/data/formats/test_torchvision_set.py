"""Data sets of torchvision, in their own layout in the data directory."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets


def write_idx(folder: Path, split: str, labels: np.ndarray, images: np.ndarray) -> None:
    """The two files of a split as KMNIST has them."""
    folder.mkdir(parents=True, exist_ok=True)
    n, height, width = images.shape
    head = struct.pack(">4I", 0x803, n, height, width)
    (folder / f"{split}-images-idx3-ubyte").write_bytes(head + images.tobytes())
    head = struct.pack(">2I", 0x801, n)
    (folder / f"{split}-labels-idx1-ubyte").write_bytes(head + labels.astype(np.uint8).tobytes())


@pytest.fixture
def kmnist(tmp_path: Path) -> tuple[Path, np.ndarray]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 28, 28), np.uint8)
    for split in ("train", "t10k"):
        write_idx(tmp_path / "KMNIST" / "raw", split, np.arange(20) % 10, images)
    return tmp_path, images


def test_a_class_is_read_with_its_names(kmnist) -> None:
    root, images = kmnist
    known = datasets.find("torchvision:KMNIST", root)
    assert known.info.class_names[:3] == ("o", "ki", "su")
    assert known.train == known.test == (2,) * 10
    found, labels = datasets.load("torchvision:KMNIST", "train", root)
    assert (found[:, 0].numpy() == images).all()
    assert labels.tolist() == [i % 10 for i in range(20)]


def test_missing_files_are_named_with_their_folder(tmp_path: Path) -> None:
    message = r"cannot be read from .* Dataset not found.*torchvision.datasets.KMNIST\('.*', train"
    with pytest.raises(UserError, match=message):
        datasets.find("torchvision:KMNIST", tmp_path)


def test_a_split_that_the_class_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="KMNIST has no split 'letters'"):
        datasets.find("torchvision:KMNIST:letters", tmp_path)
