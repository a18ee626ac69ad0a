"""Users' records converted once to plain arrays, which are then mapped into memory and not read.

json and HDF5 take minutes to read and gigabytes of memory. So what a reader yields is written to
`converted/` beside the source, user after user, and every process of a machine maps the same pages.
The conversion notes names, sizes and times of the files it was made from and is made anew when they
change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.data.fetch.fetch import data_directory
from fedsynth.data.formats.femnist import SIDE, Folder, Reader, User
from fedsynth.data.users import UserRecords
from fedsynth.storage.disk_cache import build_once

SPLITS = ("train", "test")
_VERSION = 1


def records(
    name: str, split: str, data_dir: Folder, reader: Reader, files: Sequence[Path]
) -> UserRecords:
    """The records of one split, from the conversion, which is made first where it has to be."""
    folder = data_directory(data_dir) / name / "converted"
    made_from = {"version": _VERSION, "files": [_stamp(path) for path in files]}

    def convert(draft: Path) -> None:
        for each in SPLITS:
            _write(draft, each, reader(data_dir, each), name)

    try:
        build_once(folder, made_from, convert)
    except OSError as error:
        raise UserError(
            f"cannot keep the converted {name} in {folder}: {error}. Name a folder you may write "
            "to with data_dir=... or the environment variable FEDSYNTH_DATA."
        ) from error
    # Copy on write: torch wants memory it may write to, and what nobody writes is shared by all.
    images = np.load(folder / f"{split}-images.npy", mmap_mode="c")
    labels, offsets = (np.load(folder / f"{split}-{what}.npy") for what in ("labels", "offsets"))
    return UserRecords(images, labels, offsets)


def _stamp(path: Path) -> list[object]:
    known = path.stat()
    return [path.name, known.st_size, known.st_mtime_ns]


def _write(folder: Path, split: str, users: Iterator[User], name: str) -> None:
    """Images go to disk user by user: never are all of them in memory."""
    labels: list[np.ndarray] = []
    raw = folder / f"{split}.raw"
    with raw.open("wb") as out:
        for _, images, found in users:
            if len(found):
                out.write(images.tobytes())
                labels.append(found)
    if not labels:
        raise UserError(f"the {split} split of {name} holds no records.")
    offsets = np.concatenate([[0], np.cumsum([len(some) for some in labels])])
    shape = (int(offsets[-1]), 1, SIDE, SIDE)
    target = np.lib.format.open_memmap(folder / f"{split}-images.npy", "w+", np.uint8, shape)
    target[...] = np.memmap(raw, np.uint8, "r", shape=shape)
    target.flush()
    raw.unlink()
    np.save(folder / f"{split}-labels.npy", np.concatenate(labels))
    np.save(folder / f"{split}-offsets.npy", offsets)
