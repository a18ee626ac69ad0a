"""A user's own images as a data set: `data=file:my.npz`.

The file has the arrays of Keras' mnist.npz: x_train and x_test, uint8 images [n, h, w] or
[n, c, h, w], and y_train and y_test, whole labels 0, 1, 2, ... [n]. Mean and deviation are fixed at
one half, so that no statistic of private images is used. Assumption: the class counts, which are
read from the labels, are public; plans and partitions state them.
"""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo

PREFIX = "file:"
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def public_name(data: str) -> str:
    """The name of a data set that a server may know: of arrays of one's own, not their folder."""
    return Path(data.removeprefix(PREFIX)).stem if data.startswith(PREFIX) else data


def describe(name: str) -> tuple[DatasetInfo, np.ndarray, np.ndarray]:
    """The public facts and the labels of train and test, from labels and image shapes."""
    train, test = _labels(name, "train"), _labels(name, "test")
    classes = _classes(name, train, test)
    shapes = {split: _image_shape(name, split) for split in ("train", "test")}
    if shapes["train"] != shapes["test"]:
        raise UserError(
            f"{name}: x_train and x_test have different shapes (channels, height, width): "
            f"{shapes['train']} and {shapes['test']}."
        )
    channels, height, width = shapes["train"]
    half = (0.5,) * channels
    return (
        DatasetInfo(name, (channels, height, width), classes, half, half),
        train,
        test,
    )


def read(name: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (uint8 [n, c, h, w]) and labels (int64 [n]) of a split."""
    images, labels = _images(name, split), _labels(name, split)
    if len(images) != len(labels):
        raise UserError(f"{name}: {len(images)} images but {len(labels)} labels in {split}.")
    return images, labels


def _images(name: str, split: str) -> np.ndarray:
    array = _array(name, f"x_{split}")
    _image_shape(name, split)
    return array[:, None] if array.ndim == 3 else array


def _image_shape(name: str, split: str) -> tuple[int, int, int]:
    """Channels, height and width, from the header of the array; a UserError for no images."""
    key = f"x_{split}"
    shape, dtype = _header(name, key)
    dimensions = shape if len(shape) == 4 else (*shape[:1], 1, *shape[1:])
    if dtype != np.uint8 or len(dimensions) != 4 or dimensions[1] not in (1, 3) or 0 in dimensions:
        channels_last = len(shape) == 4 and shape[3] in (1, 3) and dtype == np.uint8
        advice = f" Write {key}.transpose(0, 3, 1, 2)." if channels_last else ""
        floats = np.issubdtype(dtype, np.floating)
        raise UserError(
            f"{name}: {key} must be uint8 [n, h, w] or [n, c, h, w] with 1 or 3 channels; "
            f"it is {dtype} {list(shape)}.{advice}{_not_finite(name, key) if floats else ''}"
        )
    return dimensions[1], dimensions[2], dimensions[3]


def _not_finite(name: str, key: str) -> str:
    """The first entry of a float array that is not finite, to be corrected before conversion."""
    bad = np.argwhere(~np.isfinite(_array(name, key)))
    if not len(bad):
        return ""
    more = f" and {len(bad) - 1:,} more entries" if len(bad) > 1 else ""
    return f" It is not finite at {key}{bad[0].tolist()}{more}."


def _classes(name: str, train: np.ndarray, test: np.ndarray) -> int:
    """The number of classes: one more than the largest label, if that is plausible."""
    for key, labels in (("y_train", train), ("y_test", test)):
        if labels.max() >= len(train) + len(test):
            index = int(labels.argmax())
            raise UserError(
                f"{name}: {key}[{index}] is {labels[index]}, but there are {len(train):,} records "
                f"to train on and {len(test):,} to test on. Labels must be 0, 1, 2, ..., "
                "the number of classes less one."
            )
    return int(max(train.max(), test.max())) + 1


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
    with _opened(name, key) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _header(name: str, key: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of an array, from its header alone."""
    with _opened(name, key) as member:
        version = np.lib.format.read_magic(member)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise ValueError(f"{key} is in version {version} of the format")
        shape, _, dtype = read(member)
        return shape, dtype


@contextlib.contextmanager
def _opened(name: str, key: str) -> Iterator[IO[bytes]]:
    """One array of the file; any fault of the file is a UserError."""
    path = Path(name.removeprefix(PREFIX)).expanduser()
    try:
        with zipfile.ZipFile(path) as archive:
            held = [member.removesuffix(".npy") for member in archive.namelist()]
            if key not in held:
                raise UserError(
                    f"{path} holds {', '.join(held) or 'nothing'}; needed are {', '.join(ARRAYS)}."
                )
            with archive.open(f"{key}.npy") as member:
                yield member
    except FileNotFoundError as error:
        raise UserError(f"data={name}: there is no file {path}.") from error
    except (
        *(OSError, EOFError, ValueError, TypeError, RuntimeError),
        *(zlib.error, zipfile.BadZipFile),
    ) as error:  # RuntimeError: flags or a compression that zipfile does not know
        raise UserError(f"data={name}: {path} is not a readable npz file ({error}).") from error
