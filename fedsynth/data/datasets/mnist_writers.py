"""MNIST by writers: the real ones, as the extended labels of QMNIST tell, and virtual ones.

QMNIST (Yadav and Bottou, "Cold Case: the Lost MNIST Digits") traced every MNIST digit to the NIST
form it was cut from, and so to its writer. Its first 60,000 labels belong to MNIST's training
images, in order; 539 people wrote them.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import numpy_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.data import partition
from fedsynth.data import registry as datasets
from fedsynth.data.datasets import mnist as original
from fedsynth.data.fetch import known_files as files
from fedsynth.data.fetch import registries as clients
from fedsynth.data.fetch.fetch import data_directory
from fedsynth.data.registry import dataset
from fedsynth.data.users import Folder, UserIndex, UserRecords, in_order
from fedsynth.storage.files import atomic_write

WRITERS, VIRTUAL = "mnist_writers", "mnist_virtual"
MOST = 3400  # virtual writers, as many as federated EMNIST has
TESTED = 500  # of whom draw the test images, twenty each
ALPHA = 1.0  # of the Dirichlet draw that deals every digit to the virtual writers
FIELDS, TRAINING_IMAGES, WRITER = 8, 60_000, 2  # an extended label has eight numbers

LABELS = files.VerifiedFile(
    "qmnist-train-labels-idx2-int",
    "bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5",
)
PUBLISHED = datasets.find(original.mnist.__name__)


# Real writers


def label_places(data_dir: Folder) -> tuple[Path, ...]:
    """Where the extended labels are looked for: here, and where torchvision keeps them."""
    root = data_directory(data_dir)
    return (root / "qmnist", root / "QMNIST" / "raw")


def lacking(data_dir: Folder) -> str | None:
    """Why the writers of MNIST are not known here; None if they are. Tried once."""
    return _lacking(data_directory(data_dir))


@functools.lru_cache(maxsize=8)
def _lacking(folder: Path) -> str | None:
    try:
        _label_file(folder)
    except UserError as error:
        return str(error)
    return None


def _label_file(data_dir: Folder) -> Path:
    """The file with the extended labels, fetched first where it is not there yet."""
    places = label_places(data_dir)
    for place in places:
        if found := files.locate(place, LABELS):
            return found
    try:
        with tempfile.TemporaryDirectory(prefix="fedsynth-") as empty:
            fetched = clients.qmnist_labels(LABELS.name, Path(empty))
            content = files.read_known(fetched, LABELS)
        places[0].mkdir(parents=True, exist_ok=True)
        atomic_write(places[0] / LABELS.name, content)
    except (clients.Unavailable, files.WrongContent, OSError) as error:
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
        content = files.read_known(path, LABELS)
    except files.WrongContent as error:
        raise UserError(f"{error}. Delete it, or put the right file there.") from error
    labels = np.frombuffer(content, ">i4", offset=12).reshape(-1, FIELDS)[:TRAINING_IMAGES]
    return np.unique(labels[:, WRITER], return_inverse=True)[1].reshape(-1)


@functools.lru_cache(maxsize=2)
def _by_writer(_parties: int, data_dir: Folder) -> UserRecords:
    images, labels = PUBLISHED.reader("train", data_dir)
    return in_order(writers(data_dir), labels, images)


@dataset(
    DatasetInfo(WRITERS, (1, 28, 28), 10, PUBLISHED.info.mean, PUBLISHED.info.std),
    train=PUBLISHED.train,
    test=PUBLISHED.test,
    about="MNIST by its 539 NIST writers, from the extended labels of QMNIST; not EMNIST",
    owners=UserIndex(
        read=_by_writer, counts=lambda parties, folder: _by_writer(parties, folder).counts(10)
    ),
)
def mnist_writers(split: str, data_dir: Folder) -> tuple[np.ndarray, np.ndarray]:
    """MNIST's own files."""
    return PUBLISHED.reader(split, data_dir)


# Virtual writers


@functools.lru_cache(maxsize=4)
def _dealt(parties: int, _data_dir: Folder) -> np.ndarray:
    """How many of each digit every virtual writer holds, from public counts; nobody is empty."""
    rng = numpy_generator(VIRTUAL, "dirichlet", parties)
    counts = partition.dirichlet(PUBLISHED.train, parties, rng, alpha=ALPHA)
    for empty in np.flatnonzero(counts.sum(1) == 0):
        rich = counts.sum(1).argmax()
        digit = counts[rich].argmax()
        counts[rich, digit] -= 1
        counts[empty, digit] += 1
    return counts


@functools.lru_cache(maxsize=2)
def _virtual(parties: int, data_dir: Folder) -> UserRecords:
    images, labels = PUBLISHED.reader("train", data_dir)
    rng = numpy_generator(VIRTUAL, "assign", parties)
    parts = partition.assign(labels, _dealt(parties, data_dir), rng)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return UserRecords(images, labels, offsets, np.concatenate(parts), hand=handwriting)


def handwriting(user: int, images: np.ndarray) -> np.ndarray:
    """Images as this virtual writer would have drawn them: one fixed slant, turn, size, place and
    pressure of the pen a user."""
    rng = numpy_generator(VIRTUAL, "hand", user)
    slant, turn = rng.normal(0, 0.18), rng.normal(0, 0.12)
    wide, tall = np.exp(rng.normal(0, 0.12, 2))
    shift = rng.normal(0, 0.05, 2)
    pressure = np.exp(rng.normal(0, 0.35))
    rotate = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matrix = rotate @ np.array([[wide, slant], [0, tall]])
    theta = torch.tensor(np.column_stack([matrix, shift]), dtype=torch.float32)
    pixels = torch.tensor(images, dtype=torch.float32) / 255
    grid = functional.affine_grid(theta[None], [1, 1, *pixels.shape[2:]], align_corners=False)
    drawn = functional.grid_sample(
        pixels, grid.expand(len(pixels), -1, -1, -1), align_corners=False
    )
    inked = drawn.clamp(0, 1) ** pressure
    return (255 * inked).round().to(torch.uint8).numpy()


@functools.lru_cache(maxsize=1)
def _virtual_test(data_dir: Folder) -> tuple[np.ndarray, np.ndarray]:
    """Test image i as the virtual writer i modulo 500 draws it."""
    images, labels = PUBLISHED.reader("test", data_dir)
    drawn = images.copy()
    for user in range(TESTED):
        drawn[user::TESTED] = handwriting(user, images[user::TESTED])
    return drawn, labels


@dataset(
    DatasetInfo(VIRTUAL, (1, 28, 28), 10, PUBLISHED.info.mean, PUBLISHED.info.std),
    train=PUBLISHED.train,
    test=PUBLISHED.test,
    about="VIRTUAL writers: MNIST cut by a Dirichlet draw, with a made-up handwriting for each",
    made=True,
    owners=UserIndex(read=_virtual, counts=_dealt, most=MOST),
)
def mnist_virtual(split: str, data_dir: Folder) -> tuple[np.ndarray, np.ndarray]:
    """MNIST's own training files; its test images in the hands of the virtual writers."""
    return _virtual_test(data_dir) if split == "test" else PUBLISHED.reader(split, data_dir)
