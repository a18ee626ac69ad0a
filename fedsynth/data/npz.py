"""A user's own images as a data set: `data=file:my.npz`.

The file holds what the well-known MNIST archive of that kind holds: x_train and x_test, uint8
images [n, h, w] or [n, c, h, w], and y_train and y_test, whole labels 0, 1, 2, ... [n]. Mean and
deviation are fixed at one half, so that nothing is computed from private images in the open. The
class counts are read from the labels and then count as public, in plans and in partitions.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from fedsynth.core import DataFacts
from fedsynth.errors import UserError

PREFIX = "file:"
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def describe(name: str) -> tuple[DataFacts, tuple[int, ...], tuple[int, ...]]:
    """Facts, and class counts of train and test. Reads labels and the shape of the images."""
    train, test = _labels(name, "train"), _labels(name, "test")
    classes = int(max(train.max(), test.max())) + 1
    shapes = {split: _images(name, split).shape[1:] for split in ("train", "test")}
    if shapes["train"] != shapes["test"]:
        raise UserError(f"{name}: x_train and x_test have different shapes: {shapes}.")
    channels, height, width = shapes["train"]
    half = (0.5,) * channels
    return (
        DataFacts(name, (channels, height, width), classes, half, half),
        tuple(np.bincount(train, minlength=classes).tolist()),
        tuple(np.bincount(test, minlength=classes).tolist()),
    )


def read(name: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (uint8 [n, c, h, w]) and labels (int64 [n]) of a split."""
    images, labels = _images(name, split), _labels(name, split)
    if len(images) != len(labels):
        raise UserError(f"{name}: {len(images)} images but {len(labels)} labels in {split}.")
    return images, labels


def _images(name: str, split: str) -> np.ndarray:
    array = _array(name, f"x_{split}")
    images = array[:, None] if array.ndim == 3 else array
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise UserError(
            f"{name}: x_{split} must be uint8 [n, h, w] or [n, c, h, w] with 1 or 3 channels; "
            f"it is {array.dtype} {list(array.shape)}."
        )
    return images


def _labels(name: str, split: str) -> np.ndarray:
    labels = _array(name, f"y_{split}")
    whole = np.issubdtype(labels.dtype, np.integer)
    if labels.ndim != 1 or not whole or len(labels) == 0 or labels.min() < 0:
        raise UserError(
            f"{name}: y_{split} must be whole labels 0, 1, 2, ... in one dimension; it is "
            f"{labels.dtype} {list(labels.shape)}."
        )
    return labels.astype(np.int64)


def _array(name: str, key: str) -> np.ndarray:
    path = Path(name.removeprefix(PREFIX)).expanduser()
    try:
        with np.load(path, allow_pickle=False) as archive:
            if key not in archive.files:
                raise UserError(
                    f"{path} holds {', '.join(archive.files) or 'nothing'}; needed are "
                    f"{', '.join(ARRAYS)}."
                )
            return archive[key]
    except FileNotFoundError as error:
        raise UserError(f"data={name}: there is no file {path}.") from error
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(f"data={name}: {path} is not a readable npz file ({error}).") from error
