"""Records of one's own in any format: their public facts, and a public cut into train and test.

Assumption: the names and counts of the classes and of the parties are public; plans and partitions
state them. Means and deviations are constants, so that no statistic of private records is used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.data.holdout import holdout

TEST_SHARE = 0.2  # of records that come without test records
NO_PARTIES = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class OwnFacts:
    """Public facts of records of one's own.

    Attributes:
        info: Shape, classes and columns.
        train: Labels of the training records, in their order.
        test: Labels of the test records.
        parties: The names of the parties; empty if the data name none.
        owners: The party of each training record.
        seen: A sentence on what was read to know all this.
    """

    info: DatasetInfo
    train: np.ndarray
    test: np.ndarray
    parties: tuple[str, ...] = ()
    owners: np.ndarray = field(default_factory=lambda: NO_PARTIES)
    seen: str = "class counts taken as public"

    def counts(self, split: str) -> tuple[int, ...]:
        """The number of records of each class in a split."""
        labels = self.train if split == "train" else self.test
        return tuple(np.bincount(labels, minlength=self.info.classes).tolist())


def checked(facts: OwnFacts) -> OwnFacts:
    """The facts, if classifiers can be trained and tested on such records.

    Raises:
        UserError: There is one class only, a class without training records, or a party without
            records.
    """
    info, name = facts.info, facts.info.name
    train, test = facts.counts("train"), facts.counts("test")
    if sum(count > 0 for count in train) < 2:
        raise UserError(f"{name} has records of one class only: a classifier needs two or more.")
    if not sum(test):
        raise UserError(f"{name} has no test records.")
    for index, (learned, tested) in enumerate(zip(train, test, strict=True)):
        if tested and not learned:
            raise UserError(
                f"{name}: {tested:,} test records have the label {info.class_text(index)}, and no "
                "training record has it."
            )
        if not learned and not info.class_names:
            raise UserError(
                f"{name}: no record has the label {index}, and labels go to {info.classes - 1}. "
                f"Labels must be 0, 1, 2, ... without gaps."
            )
    held = np.bincount(facts.owners, minlength=len(facts.parties))
    for party, records in zip(facts.parties, held, strict=True):
        if not records:
            raise UserError(f"{name}: party {party!r} has no training record.")
    return facts


def cut(labels: np.ndarray, share: float = TEST_SHARE) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training and test records where a data set does not tell them apart: the same
    share of each class, by a public random order."""
    return holdout(labels, share, "own records", "test")


def image_facts(name: str, shape: tuple[int, int, int], classes: tuple[str, ...]) -> DatasetInfo:
    """The public facts of images of one's own."""
    half = (0.5,) * shape[0]
    return DatasetInfo(name, shape, len(classes), half, half, class_names=classes)


def natural(names: set[str]) -> tuple[str, ...]:
    """Names in order; numbers by their value.

    >>> natural({"10", "9"}), natural({"b", "a"})
    (('9', '10'), ('a', 'b'))
    """
    whole = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=(lambda n: (int(n), n)) if whole else (lambda n: (0, n))))


def stamp(path: Path) -> tuple[object, ...]:
    """A value that changes when the file, or a folder below the folder, changes."""
    found: list[object] = []
    for folder, inner, files in os.walk(path):
        inner.sort()
        state = os.stat(folder)
        found += [folder, state.st_mtime_ns, len(files)]
    for each in (path, *companions(path)):
        if each.is_file():
            state = each.stat()
            found += [str(each), state.st_mtime_ns, state.st_size]
    return tuple(found)


def companions(path: Path) -> tuple[Path, ...]:
    """The places of the schema of a file or folder."""
    if path.is_dir():
        return (path / "schema.yaml",)
    return (path.with_name(f"{path.stem}.schema.yaml"),)
