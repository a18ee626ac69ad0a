"""Fashion-MNIST, from its four original files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsynth.core.types import DatasetInfo
from fedsynth.data.fetch import known_files
from fedsynth.data.formats import idx
from fedsynth.data.registry import dataset


@dataset(
    DatasetInfo("fashion_mnist", (1, 28, 28), 10, (0.2861,), (0.3530,)),
    train=(6000,) * 10,
    test=(1000,) * 10,
    about="Fashion-MNIST: 70,000 pictures of clothes, 28x28 grey",
)
def fashion_mnist(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of the two files of a split."""
    return idx.read(known_files.FASHION_MNIST, split, data_dir)
