"""MNIST and Fashion-MNIST, from their four original files each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsynth.core.types import DatasetInfo
from fedsynth.data.fetch import fetch as sources
from fedsynth.data.fetch import known_files as files
from fedsynth.data.registry import dataset


def _read_idx(
    known: files.IdxSet, split: str, data_dir: str | Path | None
) -> tuple[np.ndarray, np.ndarray]:
    images, labels = (
        (known.train_images, known.train_labels)
        if split == "train"
        else (known.test_images, known.test_labels)
    )
    return (
        files.parse_images(sources.read(known, images, data_dir)),
        files.parse_labels(sources.read(known, labels, data_dir)),
    )


@dataset(
    DatasetInfo("mnist", (1, 28, 28), 10, (0.1307,), (0.3081,)),
    train=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    test=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    about="MNIST: 70,000 handwritten digits, 28x28 grey",
)
def mnist(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The original four files."""
    return _read_idx(files.MNIST, split, data_dir)


@dataset(
    DatasetInfo("fashion_mnist", (1, 28, 28), 10, (0.2861,), (0.3530,)),
    train=(6000,) * 10,
    test=(1000,) * 10,
    about="Fashion-MNIST: 70,000 pictures of clothes, 28x28 grey",
)
def fashion_mnist(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The original four files."""
    return _read_idx(files.FASHION_MNIST, split, data_dir)
