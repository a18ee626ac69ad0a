"""The data sets by name, with the facts that are public before any record is read.

A data set is one function, in a file of its own in `data/datasets` or in a plug-in:

    @dataset(
        DatasetInfo("stripes", (1, 28, 28), classes=2, mean=(0.5,), std=(0.5,)),
        train=(50, 60), test=(9, 8), about="a one-line description",
    )
    def stripes(split, data_dir):
        return images, labels          # uint8 [n, c, h, w] and int64 [n] arrays

`data.tables` gives the `DatasetInfo` of a table and encodes its columns (float32 in [0, 1]).

Class counts, means and deviations are those published with the data. Planning uses nothing else, so
a plan can be made where no data is. Where the counts are not printed anywhere but follow from a
published list of labels, `counted` counts that list.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsynth.core import plugins
from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError, unknown
from fedsynth.core.types import DatasetInfo
from fedsynth.data.users import UserIndex

if TYPE_CHECKING:  # imported where it is used, so that listing data sets is quick
    import torch

SPLITS = ("train", "test")
OWN = ("file:", "torchvision:")  # prefixes of records of one's own: see `formats.own`
PACKAGE = "fedsynth.data.datasets"  # imported by name, as its modules import this one

Reader = Callable[[str, str | Path | None], tuple[np.ndarray, np.ndarray]]
Counter = Callable[[str, str | Path | None], tuple[int, ...]]


@dataclass(frozen=True)
class DataSet:
    """The public facts of a data set, and the function that reads it."""

    info: DatasetInfo
    train: tuple[int, ...]  # published records of each class; empty: they depend on the files
    test: tuple[int, ...]
    about: str
    made: bool  # drawn by a program, not collected
    reader: Reader
    owners: UserIndex | None = None  # of data whose records belong to users: partition=users
    counted: Counter | None = None  # class counts of a split from a published list
    parties: tuple[str, ...] = ()  # names, of data that state whose each record is
    party_of: Callable[[], np.ndarray] | None = None  # the party of each training record

    @property
    def name(self) -> str:
        """The name in `data=...`."""
        return self.info.name

    def class_counts(
        self, split: str = "train", data_dir: str | Path | None = None
    ) -> tuple[int, ...]:
        """The published number of records of each class in a split.

        Raises:
            UserError: The split is unknown, or the counts are not published.
        """
        _check_split(split)
        counts = self.train if split == "train" else self.test
        if not counts and self.counted is not None:
            counts = self.counted(split, data_dir)
        if not counts:
            raise UserError(
                f"the class counts of {self.name} are not published, as they depend on the files: "
                "it can be partitioned with partition=users only."
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
    """Register a function `(split, data_dir) -> (images, labels)` as a data set.

    Args:
        info: Name, shape, number of classes and normalisation constants.
        train: Published number of training records of each class; empty if unpublished.
        test: The same of the test records.
        about: One line for the listing.
        made: Whether the data are drawn by a program.
        owners: The users of data whose records belong to users.
        counted: Counts the classes of a split in a published list of labels.
    """

    def register(reader: Reader) -> Reader:
        if info.name in _registry:
            raise ValueError(f"there are two data sets named {info.name!r}")
        _registry[info.name] = DataSet(info, train, test, about, made, reader, owners, counted)
        return reader

    return register


def names() -> tuple[str, ...]:
    """The names of all data sets, which imports all of their files."""
    discover()
    return tuple(sorted(_registry))


def find(name: str, data_dir: str | Path | None = None) -> DataSet:
    """The public facts of a data set; imports only its own file where that is named after it.

    Reads no data; of sets of one's own (`file:PATH`) the labels, the parties and the shape.

    >>> find("mnist").info.shape, find("mnist").class_counts()[5]
    ((1, 28, 28), 5421)
    """
    if name.startswith(OWN) and name not in _registry:
        return _of_ones_own(name, data_dir)
    if name not in _registry:
        _import_file_of(name)
    if name not in _registry:
        discover()
    if name not in _registry:
        if Path(name).suffix or Path(name).is_dir():
            raise UserError(f"unknown data set {name!r}: a file is named data={OWN[0]}{name}.")
        raise unknown("data set", name, [*names(), f"{OWN[0]}PATH", f"{OWN[1]}NAME"])
    return _registry[name]


def register_in_memory(name: str, data: DataSet) -> None:
    """Register records that are in memory, as if `name` (`file:PATH.npz`) were their file."""
    _registry[name] = data


def unregister(name: str) -> None:
    """Forget what `register_in_memory` registered."""
    _registry.pop(name, None)


def _of_ones_own(name: str, data_dir: str | Path | None) -> DataSet:
    """Records of one's own. Their labels are read, and the counts are taken as public."""
    from fedsynth.data.formats import own

    facts = own.describe(name, data_dir)
    place = name.removeprefix(OWN[0])
    return DataSet(
        facts.info,
        facts.counts("train"),
        facts.counts("test"),
        about=f"your own records in {place}; {facts.seen}",
        made=False,
        reader=lambda split, folder: own.read(name, split, folder),
        parties=facts.parties,
        party_of=(lambda: facts.owners) if facts.parties else None,
    )


def load(
    name: str, split: str, data_dir: str | Path | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Read all records of a split, in the published order.

    Returns:
        Images (uint8 [n, c, h, w]; of a table float32 in [0, 1]) and labels (int64 [n]).

    Raises:
        UserError: The data cannot be read, or differ from the public facts.
    """
    import torch

    known = find(name, data_dir)
    _check_split(split)
    images, labels = known.reader(split, data_dir)
    if fault := _fault(known, images, labels):
        raise UserError(f"the {split} split of {name} is not as published: {fault}.")
    counts = tuple(np.bincount(labels, minlength=known.info.classes).tolist())
    published = (known.train if split == "train" else known.test) or counts
    if known.counted is not None:
        published = known.class_counts(split, data_dir)
    if counts != published or images.shape != (len(labels), *known.info.shape):
        raise UserError(
            f"the {split} split of {name} is not as published: expected images of shape "
            f"{known.info.shape} and class counts {published}, found "
            f"{images.shape[1:]} and {counts}."
        )
    writable = images if images.flags.writeable else images.copy()  # a memory map stays on disk
    return torch.from_numpy(writable), torch.from_numpy(labels.astype(np.int64))


def _fault(known: DataSet, images: np.ndarray, labels: np.ndarray) -> str:
    """The first fault of records, by its position and not by its value; empty if there is none."""
    table = known.info.kind is DataKind.TABLE
    dtype = np.float32 if table else np.uint8
    if images.dtype != dtype:
        return f"records must be {np.dtype(dtype)}, and are {images.dtype}"
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        return f"labels must be whole numbers [n], and are {labels.dtype} {list(labels.shape)}"
    outside = np.flatnonzero((labels < 0) | (labels >= known.info.classes))
    if len(outside):
        last = known.info.classes - 1
        return f"the label of record {outside[0]} is not one of 0 to {last} ({len(outside)} are so)"
    if not table:
        return ""
    bad = np.argwhere(~((images >= 0) & (images <= 1)))  # NaN is neither
    if not len(bad):
        return ""
    record, column = (int(index) for index in bad[0][:2])
    return f"column {known.info.columns[column].name!r} of record {record} is not from 0 to 1"


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)


def discover() -> None:
    """Register all data sets, by importing the files of `data/datasets` and installed plug-ins."""
    for module in _modules():
        importlib.import_module(f"{PACKAGE}.{module}")
    plugins.import_entry_points()


def _import_file_of(name: str) -> None:
    """Import the file with the longest name that `name` is or begins with, if there is one."""
    files = [m for m in _modules() if name == m or name.startswith(f"{m}_")]
    if files:
        importlib.import_module(f"{PACKAGE}.{max(files, key=len)}")


def _modules() -> list[str]:
    package = importlib.import_module(PACKAGE)
    return [module.name for module in pkgutil.iter_modules(package.__path__)]
