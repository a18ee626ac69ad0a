"""`mnist_virtual`: MNIST cut among virtual writers, each with a synthetic handwriting.

A Dirichlet draw deals the digits to the writers, and a fixed affine map and pen pressure per writer
make their images differ. It stands in for federated EMNIST where that is not available.
"""

from __future__ import annotations

import functools

import numpy as np

from fedsynth.core.randomness import numpy_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.data import partition, registry
from fedsynth.data.registry import dataset
from fedsynth.data.users import Folder, UserIndex, UserRecords

NAME = "mnist_virtual"
MAX_WRITERS = 3400  # as many as federated EMNIST has
TEST_WRITERS = 500  # each draws twenty test images
ALPHA = 1.0  # of the Dirichlet draw that deals each digit to the writers
PUBLISHED = registry.find("mnist")


@functools.lru_cache(maxsize=4)
def _dealt(parties: int, _data_dir: Folder) -> np.ndarray:
    """The records of each digit and virtual writer, from public counts; no writer is empty."""
    rng = numpy_generator(NAME, "dirichlet", parties)
    counts = partition.dirichlet(PUBLISHED.train, parties, rng, alpha=ALPHA)
    for empty in np.flatnonzero(counts.sum(1) == 0):
        largest = counts.sum(1).argmax()
        digit = counts[largest].argmax()
        counts[largest, digit] -= 1
        counts[empty, digit] += 1
    return counts


@functools.lru_cache(maxsize=2)
def _virtual(parties: int, data_dir: Folder) -> UserRecords:
    images, labels = PUBLISHED.reader("train", data_dir)
    rng = numpy_generator(NAME, "assign", parties)
    parts = partition.assign(labels, _dealt(parties, data_dir), rng)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return UserRecords(images, labels, offsets, np.concatenate(parts), transform=handwriting)


def handwriting(user: int, images: np.ndarray) -> np.ndarray:
    """The images in the handwriting of one virtual writer.

    Slant, rotation, size, position and pen pressure are fixed per writer."""
    import torch
    from torch.nn import functional

    from fedsynth.core.outcomes import unit_interval

    rng = numpy_generator(NAME, "hand", user)
    slant, turn = rng.normal(0, 0.18), rng.normal(0, 0.12)
    wide, tall = np.exp(rng.normal(0, 0.12, 2))
    shift = rng.normal(0, 0.05, 2)
    pressure = np.exp(rng.normal(0, 0.35))
    rotate = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matrix = rotate @ np.array([[wide, slant], [0, tall]])
    theta = torch.tensor(np.column_stack([matrix, shift]), dtype=torch.float32)
    pixels = unit_interval(torch.tensor(images))
    grid = functional.affine_grid(theta[None], [1, 1, *pixels.shape[2:]], align_corners=False)
    drawn = functional.grid_sample(
        pixels, grid.expand(len(pixels), -1, -1, -1), align_corners=False
    )
    inked = drawn.clamp(0, 1) ** pressure
    return (255 * inked).round().to(torch.uint8).numpy()


@functools.lru_cache(maxsize=1)
def _virtual_test(data_dir: Folder) -> tuple[np.ndarray, np.ndarray]:
    """Test image i in the handwriting of virtual writer i modulo 500."""
    images, labels = PUBLISHED.reader("test", data_dir)
    drawn = images.copy()
    for user in range(TEST_WRITERS):
        drawn[user::TEST_WRITERS] = handwriting(user, images[user::TEST_WRITERS])
    return drawn, labels


@dataset(
    DatasetInfo(NAME, (1, 28, 28), 10, PUBLISHED.info.mean, PUBLISHED.info.std),
    train=PUBLISHED.train,
    test=PUBLISHED.test,
    about="VIRTUAL writers: MNIST cut by a Dirichlet draw, with a made-up handwriting per writer",
    made=True,
    owners=UserIndex(read=_virtual, counts=_dealt, max_users=MAX_WRITERS),
)
def mnist_virtual(split: str, data_dir: Folder) -> tuple[np.ndarray, np.ndarray]:
    """The training images of MNIST; its test images in the handwritings of the virtual writers."""
    return _virtual_test(data_dir) if split == "test" else PUBLISHED.reader(split, data_dir)
