"""`made_table`, a synthetic table of clinic visits: numbers and categories, two unequal classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsynth.core.errors import unknown
from fedsynth.core.randomness import numpy_generator
from fedsynth.core.types import Column
from fedsynth.data.registry import dataset
from fedsynth.data.tables import encode, table_info

WARDS = ("north", "south", "east", "west", "unknown")
COLUMNS = (
    Column("age", 18, 90, whole=True),
    Column("visits", 0, 40, whole=True),
    Column("pressure", 80, 200),
    Column("marker", 0, 10),
    Column("ward", categories=WARDS),
    Column("smokes", categories=("no", "yes")),
    Column("referral", categories=("self", "doctor", "emergency")),
)
MEAN = (0.4419, 0.1514, 0.3841, 0.3117, 0.3792, 0.4005, 0.4123)
STD = (0.1959, 0.0790, 0.1181, 0.1706, 0.3107, 0.4901, 0.3886)
TRAIN, TEST = (1200, 800), (300, 200)


@dataset(
    table_info("made_table", COLUMNS, 2, MEAN, STD),
    train=TRAIN,
    test=TEST,
    about="made-up table: 2,500 visits to a clinic drawn by a program, 4 numbers and 3 categories",
    made=True,
)
def made_table(split: str, _data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The same records at each call; needs no files."""
    sizes = {"train": TRAIN, "test": TEST}
    if split not in sizes:
        raise unknown("split", split, sizes)
    rng = numpy_generator("made_table", split)
    labels = np.repeat([0, 1], sizes[split])
    columns = _draw(labels, rng)
    order = rng.permutation(len(labels))
    return encode(COLUMNS, columns, "made_table")[order], labels[order]


def _draw(labels: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """The columns: classes differ in means, in odds and in the correlation of two columns."""
    n, sick = len(labels), labels == 1
    age = np.rint(rng.normal(np.where(sick, 57, 45), 13, n).clip(18, 90))
    smokes = rng.random(n) < np.where(sick, 0.6, 0.3)
    visits = rng.poisson(np.where(sick, 7, 4) + 2 * smokes)
    pressure = rng.normal(125 + np.where(sick, 0.4, 0.1) * (age - 50), 14, n).clip(80, 200)
    marker = rng.gamma(np.where(sick, 6, 4), np.where(smokes, 0.75, 0.58), n).clip(0, 10)
    ward = _choose(rng, sick, (0.35, 0.25, 0.2, 0.15, 0.05), (0.15, 0.3, 0.2, 0.25, 0.1))
    referral = _choose(rng, sick, (0.5, 0.35, 0.15), (0.25, 0.4, 0.35))
    yes_no = np.where(smokes, "yes", "no")
    return [age, visits, pressure, marker, np.array(WARDS)[ward], yes_no, _REFERRALS[referral]]


_REFERRALS = np.array(COLUMNS[-1].categories)


def _choose(
    rng: np.random.Generator, sick: np.ndarray, healthy: tuple[float, ...], ill: tuple[float, ...]
) -> np.ndarray:
    """One category index per record, by the odds of its class."""
    odds = np.cumsum(np.where(sick[:, None], ill, healthy), axis=1)
    return (rng.random((len(sick), 1)) > odds[:, :-1]).sum(1)
