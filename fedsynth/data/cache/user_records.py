"""Records of users, converted once to plain arrays that are mapped into memory.

JSON and HDF5 files take minutes and gigabytes to read. The users that a reader yields are therefore
written one after another to `converted/` beside the source. The conversion is repeated when name,
size or time of a source file changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.data.cache import memmap_cache
from fedsynth.data.fetch.fetch import data_directory
from fedsynth.data.formats.femnist import SIDE, Folder, Reader, User
from fedsynth.data.users import UserRecords

SPLITS = ("train", "test")
_VERSION = 1


def records(
    name: str, split: str, data_dir: Folder, reader: Reader, files: Sequence[Path]
) -> UserRecords:
    """The records of one split, converted first where necessary.

    Args:
        name: The data set.
        split: One of `SPLITS`.
        data_dir: The data directory, None for the default.
        reader: Yields the users of a split.
        files: The files that are read.

    Raises:
        UserError: The source cannot be read, or the folder cannot be written.
    """
    folder = data_directory(data_dir) / name / "converted"
    made_from = {"version": _VERSION, "files": [memmap_cache.file_stamp(path) for path in files]}

    def convert(draft: Path) -> None:
        for each in SPLITS:
            _write(draft, each, reader(data_dir, each), name)

    memmap_cache.build(folder, made_from, convert, f"the converted {name}")
    images = memmap_cache.open_mapped(folder / f"{split}-images.npy")
    labels, offsets = (np.load(folder / f"{split}-{part}.npy") for part in ("labels", "offsets"))
    return UserRecords(images, labels, offsets)


def _write(folder: Path, split: str, users: Iterator[User], name: str) -> None:
    """Write the users of a split, one at a time so that they need not fit into memory."""
    labels: list[np.ndarray] = []
    raw = folder / f"{split}.raw"
    with raw.open("wb") as out:
        for _, user_images, user_labels in users:
            if len(user_labels):
                out.write(user_images.tobytes())
                labels.append(user_labels)
    if not labels:
        raise UserError(f"the {split} split of {name} holds no records.")
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in labels])])
    shape = (int(offsets[-1]), 1, SIDE, SIDE)
    images = memmap_cache.create(folder / f"{split}-images.npy", shape)
    images[...] = np.memmap(raw, np.uint8, "r", shape=shape)
    images.flush()
    raw.unlink()
    np.save(folder / f"{split}-labels.npy", np.concatenate(labels))
    np.save(folder / f"{split}-offsets.npy", offsets)
