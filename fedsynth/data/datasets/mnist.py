"""MNIST, from its four original files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsynth.core.types import DatasetInfo
from fedsynth.data.fetch import known_files
from fedsynth.data.formats import idx
from fedsynth.data.registry import dataset


@dataset(
    DatasetInfo("mnist", (1, 28, 28), 10, (0.1307,), (0.3081,)),
    train=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    test=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    about="MNIST: 70,000 handwritten digits, 28x28 grey",
)
def mnist(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of the two files of a split."""
    return idx.read(known_files.MNIST, split, data_dir)
