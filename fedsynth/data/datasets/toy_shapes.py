"""The made-up data set, for tests and first tries."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsynth.core.types import DatasetInfo
from fedsynth.data.datasets import line_figures as shapes
from fedsynth.data.registry import dataset


@dataset(
    DatasetInfo("shapes", (1, 28, 28), shapes.CLASSES, shapes.MEAN, shapes.STD),
    train=(shapes.TRAIN_A_CLASS,) * shapes.CLASSES,
    test=(shapes.TEST_A_CLASS,) * shapes.CLASSES,
    about="made-up shapes: 2,400 images drawn by a program, 28x28 grey; for tests and first tries",
    made=True,
)
def made_shapes(split: str, _data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Drawn anew each time; needs no files."""
    return shapes.draw(split)
