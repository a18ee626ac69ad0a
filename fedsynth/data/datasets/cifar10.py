"""CIFAR-10 from its published Python batches, wherever people keep them.

The batches are pickles. They are unpickled only after their hash matched, and even then by a reader
that knows arrays and nothing else.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.data.fetch import fetch as sources
from fedsynth.data.fetch import known_files as files
from fedsynth.data.registry import dataset

SHAPE = (3, 32, 32)
# The deviations that PSG and others scale by: the mean of each image's own. Over all pixels they
# are 0.2470, 0.2435 and 0.2616.
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


@dataset(
    DatasetInfo("cifar10", SHAPE, 10, MEAN, STD),
    train=(5000,) * 10,
    test=(1000,) * 10,
    about="CIFAR-10: 60,000 photographs of ten kinds of things, 32x32 RGB",
)
def cifar10(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The five training batches or the one test batch, in their order."""
    wanted = [k for k in files.CIFAR10.files if k.name.startswith("test") == (split == "test")]
    batches = [_batch(sources.read(files.CIFAR10, k, data_dir), k.name) for k in wanted]
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _batch(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (uint8 [n, 3, 32, 32]) and labels (int64 [n]) of one batch."""
    try:
        batch = _Arrays(io.BytesIO(content), encoding="bytes").load()
        images = np.asarray(batch[b"data"], np.uint8).reshape(-1, *SHAPE)
        return images, np.asarray(batch[b"labels"], np.int64)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{name} is not a batch of CIFAR-10 ({error}).") from error


class _Arrays(pickle.Unpickler):
    """Unpickles numpy arrays, texts, numbers, lists and dictionaries; anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """The few names that arrays are made of; `numpy.core` is what numpy 1 called them."""
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        if name == "_reconstruct" and module.endswith("core.multiarray"):
            return _reconstruct
        if (module, name) == ("_codecs", "encode"):
            return _encode
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _reconstruct(_kind: type, shape: tuple[int, ...], code: bytes) -> np.ndarray:
    """An empty array, which the pickle then fills."""
    return np.empty(shape, code.decode())


def _encode(text: str, encoding: str) -> bytes:
    """How protocol 2 writes bytes."""
    return text.encode(encoding if encoding in {"latin1", "latin-1"} else "ascii")
