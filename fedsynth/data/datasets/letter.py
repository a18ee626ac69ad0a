"""Letter recognition (Frey and Slate, 1991): 20,000 distorted capitals in twenty fonts, each as
sixteen whole numbers from 0 to 15, and 26 classes.

Read from KEEL's letter.dat, whose order is not UCI's, so that UCI's split by position does not
apply: a fifth of each class is for testing, by a public random order.
"""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np

from fedsynth.core.types import Column
from fedsynth.data.fetch import fetch, known_files
from fedsynth.data.formats.own_facts import cut
from fedsynth.data.registry import dataset
from fedsynth.data.tables import encode, table_info

NAMES = (
    *("x-box", "y-box", "width", "high", "onpix", "x-bar", "y-bar", "x2bar"),
    *("y2bar", "xybar", "x2ybr", "xy2br", "x-ege", "xegvy", "y-ege", "yegvx"),
)
COLUMNS = tuple(Column(name, 0, 15, whole=True) for name in NAMES)
LETTERS = tuple(string.ascii_uppercase)
TRAIN = (
    631, 613, 589, 644, 614, 620, 618, 587, 604, 598, 591, 609, 634,
    626, 602, 642, 626, 606, 599, 637, 651, 611, 602, 630, 629, 587,
)  # fmt: skip
TEST = (
    158, 153, 147, 161, 154, 155, 155, 147, 151, 149, 148, 152, 158,
    157, 151, 161, 157, 152, 149, 159, 162, 153, 150, 157, 157, 147,
)  # fmt: skip


@dataset(
    table_info("letter", COLUMNS, 26, class_names=LETTERS),
    train=TRAIN,
    test=TEST,
    about="letter recognition: a table of 20,000 capitals in 16 measures; label: the letter",
)
def letter(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """KEEL's file, its records cut in two."""
    (known,) = known_files.LETTER.files
    text = fetch.read(known_files.LETTER, known, data_dir).decode("ascii")
    records = [line.split(",") for line in text.splitlines() if line]
    *columns, letters = zip(*records, strict=True)
    labels = np.array([LETTERS.index(name.strip()) for name in letters], np.int64)
    chosen = cut(labels)[split == "test"]
    return encode(COLUMNS, columns, known.name)[chosen], labels[chosen]
