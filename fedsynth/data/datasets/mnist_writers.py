"""`mnist_writers`: MNIST by its real writers, from the extended labels of QMNIST.

QMNIST (Yadav and Bottou, "Cold Case: the Lost MNIST Digits") traced every MNIST digit to the NIST
form it was cut from, and so to its writer. Its first 60,000 labels belong to the training images of
MNIST, in order; 539 people wrote them.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.data import registry
from fedsynth.data.fetch import known_files, registries
from fedsynth.data.fetch.fetch import data_directory
from fedsynth.data.registry import dataset
from fedsynth.data.users import Folder, UserIndex, UserRecords, group_by_user
from fedsynth.storage.files import atomic_write

NAME = "mnist_writers"
FIELDS, TRAINING_IMAGES, WRITER = 8, 60_000, 2  # an extended label has eight numbers

LABELS = known_files.VerifiedFile(
    "qmnist-train-labels-idx2-int",
    "bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5",
)
PUBLISHED = registry.find("mnist")


def label_places(data_dir: Folder) -> tuple[Path, ...]:
    """The folders that may hold the extended labels; the second is that of torchvision."""
    root = data_directory(data_dir)
    return (root / "qmnist", root / "QMNIST" / "raw")


def unavailable(data_dir: Folder) -> str | None:
    """The reason why the writers of MNIST are not available, or None if they are. Tried once."""
    return _unavailable(data_directory(data_dir))


@functools.lru_cache(maxsize=8)
def _unavailable(folder: Path) -> str | None:
    try:
        _label_file(folder)
    except UserError as error:
        return str(error)
    return None


def _label_file(data_dir: Folder) -> Path:
    """The file with the extended labels, fetched first where it is missing."""
    places = label_places(data_dir)
    for place in places:
        if path := known_files.locate(place, LABELS):
            return path
    try:
        with tempfile.TemporaryDirectory(prefix="fedsynth-") as empty:
            fetched = registries.qmnist_labels(LABELS.name, Path(empty))
            content = known_files.read_known(fetched, LABELS)
        places[0].mkdir(parents=True, exist_ok=True)
        atomic_write(places[0] / LABELS.name, content)
    except (registries.Unavailable, known_files.WrongContent, OSError) as error:
        raise UserError(
            f"{LABELS.name} (raw or .gz) is not in {' or '.join(map(str, places))}, and cannot be "
            f"fetched: {error}"
        ) from error
    return places[0] / LABELS.name


@functools.lru_cache(maxsize=4)
def writers(data_dir: Folder) -> np.ndarray:
    """The writer (0, 1, 2, ...) of each of MNIST's training images, in order."""
    path = _label_file(data_dir)
    try:
        content = known_files.read_known(path, LABELS)
    except known_files.WrongContent as error:
        raise UserError(f"{error}. Delete it, or put the right file there.") from error
    labels = np.frombuffer(content, ">i4", offset=12).reshape(-1, FIELDS)[:TRAINING_IMAGES]
    return np.unique(labels[:, WRITER], return_inverse=True)[1].reshape(-1)


@functools.lru_cache(maxsize=2)
def _by_writer(_parties: int, data_dir: Folder) -> UserRecords:
    images, labels = PUBLISHED.reader("train", data_dir)
    return group_by_user(writers(data_dir), labels, images)


@dataset(
    DatasetInfo(NAME, (1, 28, 28), 10, PUBLISHED.info.mean, PUBLISHED.info.std),
    train=PUBLISHED.train,
    test=PUBLISHED.test,
    about="MNIST by its 539 NIST writers, from the extended labels of QMNIST; not EMNIST",
    owners=UserIndex(
        read=_by_writer, counts=lambda parties, folder: _by_writer(parties, folder).counts(10)
    ),
)
def mnist_writers(split: str, data_dir: Folder) -> tuple[np.ndarray, np.ndarray]:
    """The files of MNIST."""
    return PUBLISHED.reader(split, data_dir)
