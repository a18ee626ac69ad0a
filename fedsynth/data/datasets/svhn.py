"""Street View House Numbers (Netzer et al., 2011): 99,289 digits in photographs, 32x32 RGB.

Read from the published files train_32x32.mat and test_32x32.mat, in which the label 10 stands for
the digit 0. The additional training images are not used.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.data.fetch import fetch, known_files
from fedsynth.data.registry import dataset

SHAPE = (3, 32, 32)
MEAN, STD = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)
TRAIN = (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659)
TEST = (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595)


@dataset(
    DatasetInfo("svhn", SHAPE, 10, MEAN, STD),
    train=TRAIN,
    test=TEST,
    about="SVHN: 99,289 digits of house numbers in photographs, 32x32 RGB",
)
def svhn(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """One published file."""
    known = next(k for k in known_files.SVHN.files if k.name.startswith(split))
    return parse(fetch.read(known_files.SVHN, known, data_dir), known.name)


def parse(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (uint8 [n, 3, 32, 32]) and labels of a file of MATLAB."""
    from scipy.io import loadmat

    try:
        arrays: dict[str, Any] = loadmat(io.BytesIO(content), variable_names=["X", "y"])
        images = np.ascontiguousarray(arrays["X"].transpose(3, 2, 0, 1), np.uint8)
        return images.reshape(-1, *SHAPE), arrays["y"].reshape(-1).astype(np.int64) % 10
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(f"{name} is not a file of SVHN ({error}).") from error
