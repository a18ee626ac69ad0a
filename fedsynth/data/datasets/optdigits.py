"""Optical digits (Alpaydin and Kaynak, 1998): 5,620 handwritten digits of 43 people, 8x8 pixels
with values from 0 to 16, which are the numbers of dark pixels in blocks of 4x4.

Read from KEEL's optdigits.dat, which holds both of UCI's parts in an order of its own, so that
UCI's split by writers does not apply: a fifth of each class is for testing, by a public random
order. Values are stored as bytes, 255 for 16.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsynth.core.types import DatasetInfo
from fedsynth.data.fetch import fetch, known_files
from fedsynth.data.formats.own_facts import cut
from fedsynth.data.registry import dataset

SIDE, MOST = 8, 16


@dataset(
    DatasetInfo("optdigits", (1, SIDE, SIDE), 10, (0.5,), (0.5,)),
    train=(443, 457, 446, 458, 454, 446, 446, 453, 443, 450),
    test=(111, 114, 111, 114, 114, 112, 112, 113, 111, 112),
    about="optical digits: 5,620 handwritten digits, 8x8 grey",
)
def optdigits(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """KEEL's file, its records cut in two."""
    (known,) = known_files.OPTDIGITS.files
    text = fetch.read(known_files.OPTDIGITS, known, data_dir).decode("ascii")
    numbers = np.array([line.split(",") for line in text.splitlines() if line], np.int64)
    images, labels = numbers[:, :-1].reshape(-1, 1, SIDE, SIDE), numbers[:, -1]
    chosen = cut(labels)[split == "test"]
    return np.rint(images[chosen] * (255 / MOST)).astype(np.uint8), labels[chosen]
