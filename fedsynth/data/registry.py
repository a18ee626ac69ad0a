"""The data sets, and what is public about each before a single record is read.

A newcomer adds a data set with one function, in a file of its own in `data/sets`:

    @dataset(
        DatasetInfo("mine", (1, 28, 28), classes=2, mean=(0.5,), std=(0.5,)),
        train=(50, 60), test=(9, 8), about="what it is",
    )
    def mine(split, data_dir):
        return images, labels          # uint8 [n, c, h, w] and int64 [n] arrays

A table is one too: `data.tables` makes its facts and encodes its columns (float32 in [0, 1]).

Class counts, like means and deviations, are those that were published with the data. Planning uses
nothing else, so a plan can be made and printed where no data is. Where the counts are not printed
anywhere but follow from a published list of labels, `counted` counts that list.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedsynth.core import plugins
from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError, unknown
from fedsynth.core.types import DatasetInfo
from fedsynth.data import datasets as sets
from fedsynth.data.formats import npz
from fedsynth.data.users import UserIndex

SPLITS = ("train", "test")

Reader = Callable[[str, str | Path | None], tuple[np.ndarray, np.ndarray]]
Counter = Callable[[str, str | Path | None], tuple[int, ...]]


@dataclass(frozen=True)
class DataSet:
    """A data set as everybody may know it, and how those who hold it read it."""

    info: DatasetInfo
    train: tuple[int, ...]  # records of each class, published; none: they depend on the files
    test: tuple[int, ...]
    about: str
    made: bool  # drawn by a program, not collected
    reader: Reader
    owners: UserIndex | None = None  # of data whose records belong to users: partition=users
    counted: Counter | None = None  # class counts of a split from a published list

    @property
    def name(self) -> str:
        """The name in `data=...`."""
        return self.info.name

    def class_counts(
        self, split: str = "train", data_dir: str | Path | None = None
    ) -> tuple[int, ...]:
        """The published number of records of each class in a split."""
        _check_split(split)
        counts = self.train if split == "train" else self.test
        if not counts and self.counted is not None:
            counts = self.counted(split, data_dir)
        if not counts:
            raise UserError(
                f"the class counts of {self.name} are not published, as they depend on the files "
                "at hand: its records can be dealt out with partition=users only."
            )
        return counts


_registry: dict[str, DataSet] = {}


def dataset(
    info: DatasetInfo,
    train: tuple[int, ...],
    test: tuple[int, ...],
    about: str,
    *,
    made: bool = False,
    owners: UserIndex | None = None,
    counted: Counter | None = None,
) -> Callable[[Reader], Reader]:
    """Register a reader `(split, data_dir) -> (images, labels)` and what is public of its data."""

    def register(reader: Reader) -> Reader:
        if info.name in _registry:
            raise ValueError(f"there are two data sets named {info.name!r}")
        _registry[info.name] = DataSet(info, train, test, about, made, reader, owners, counted)
        return reader

    return register


def names() -> tuple[str, ...]:
    """All data sets by name."""
    plugins.import_entry_points()
    return tuple(_registry)


def find(name: str) -> DataSet:
    """What is public about a data set. Reads no data (of "file:" sets only shapes and labels).

    >>> find("mnist").info.shape, find("mnist").class_counts()[5]
    ((1, 28, 28), 5421)
    """
    if name.startswith(npz.PREFIX):
        return _of_file(name)
    if name not in _registry:
        plugins.import_entry_points()
    if name not in _registry:
        raise unknown("data set", name, [*_registry, f"{npz.PREFIX}PATH.npz"])
    return _registry[name]


def _of_file(name: str) -> DataSet:
    """A user's own arrays. Here the labels are read, and their counts are taken for public."""
    info, train, test = npz.describe(name)
    return DataSet(
        info,
        train,
        test,
        about=f"your own arrays in {name.removeprefix(npz.PREFIX)}; class counts taken for public",
        made=False,
        reader=lambda split, _: npz.read(name, split),
    )


def load(
    name: str, split: str, data_dir: str | Path | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """All images (uint8 [n, c, h, w]; of a table float32 in [0, 1]) and labels (int64 [n]) of a
    split, in the published order.

    What is returned has the public shape and class counts, or a UserError says how it differs.
    """
    known = find(name)
    _check_split(split)
    images, labels = known.reader(split, data_dir)
    if wrong := _wrong(known, images, labels):
        raise UserError(f"the {split} split of {name} is not what is published: {wrong}.")
    found = tuple(np.bincount(labels, minlength=known.info.classes).tolist())
    published = (known.train if split == "train" else known.test) or found
    if known.counted is not None:
        published = known.class_counts(split, data_dir)
    if found != published or images.shape != (len(labels), *known.info.shape):
        raise UserError(
            f"the {split} split of {name} is not what is published: expected images of shape "
            f"{known.info.shape} and class counts {published}, found "
            f"{images.shape[1:]} and {found}."
        )
    mine = images if images.flags.writeable else images.copy()  # a memory map stays on disk
    return torch.from_numpy(mine), torch.from_numpy(labels.astype(np.int64))


def _wrong(known: DataSet, images: np.ndarray, labels: np.ndarray) -> str:
    """What no reader may hand over, by its place and not by its value; empty if all is well."""
    table = known.info.kind == DataKind.TABLE
    wanted = np.float32 if table else np.uint8
    if images.dtype != wanted:
        return f"records must be {np.dtype(wanted)}, and are {images.dtype}"
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        return f"labels must be whole numbers [n], and are {labels.dtype} {list(labels.shape)}"
    outside = np.flatnonzero((labels < 0) | (labels >= known.info.classes))
    if len(outside):
        last = known.info.classes - 1
        return f"the label of record {outside[0]} is not one of 0 to {last} ({len(outside)} are so)"
    if not table:
        return ""
    bad = np.argwhere(~((images >= 0) & (images <= 1)))  # what is no number is neither
    if not len(bad):
        return ""
    record, column = (int(place) for place in bad[0][:2])
    return f"column {known.info.columns[column].name!r} of record {record} is not from 0 to 1"


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)


def discover() -> None:
    """Import every file of `data/sets` that is not imported yet, which registers what it holds."""
    for module in pkgutil.iter_modules(sets.__path__):
        importlib.import_module(f"{sets.__name__}.{module.name}")


discover()
