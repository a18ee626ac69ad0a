"""CIFAR-100 from its published Python batches: 60,000 photographs of a hundred kinds of things."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsynth.core.types import DatasetInfo
from fedsynth.data.datasets.cifar10 import SHAPE, python_batch
from fedsynth.data.fetch import fetch, known_files
from fedsynth.data.registry import dataset

CLASSES = 100
MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


@dataset(
    DatasetInfo("cifar100", SHAPE, CLASSES, MEAN, STD),
    train=(500,) * CLASSES,
    test=(100,) * CLASSES,
    about="CIFAR-100: 60,000 photographs of a hundred kinds of things, 32x32 RGB",
)
def cifar100(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """One published batch; the labels are the fine ones."""
    known = next(k for k in known_files.CIFAR100.files if k.name == split)
    content = fetch.read(known_files.CIFAR100, known, data_dir)
    return python_batch(content, f"{split} of CIFAR-100", b"fine_labels")
