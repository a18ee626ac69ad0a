"""Arrays that are built once in a folder and then mapped into memory by every process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.storage.disk_cache import build_once


def build(
    folder: Path, made_from: Mapping[str, Any], write: Callable[[Path], None], content: str
) -> None:
    """Make sure that `folder` holds the arrays that `write` writes: see `disk_cache.build_once`.

    Args:
        folder: Where the arrays are kept.
        made_from: The sources; the arrays are built anew when it changes.
        write: Writes the arrays into an empty folder.
        content: A name of the content, for the error.

    Raises:
        UserError: The folder cannot be written.
    """
    try:
        build_once(folder, made_from, write)
    except OSError as error:
        raise UserError(
            f"cannot keep {content} in {folder.parent}: {error}. Name a folder you may write to "
            "with data_dir=... or the environment variable FEDSYNTH_DATA."
        ) from error


def create(path: Path, shape: tuple[int, ...]) -> np.memmap:
    """A new uint8 array on disk, to be filled and flushed."""
    return np.lib.format.open_memmap(path, "w+", np.uint8, shape)


def open_mapped(path: Path) -> np.ndarray:
    """An array mapped into memory.

    Copy on write, since torch needs writable memory; pages that are not written are shared."""
    array: np.ndarray = np.load(path, mmap_mode="c")
    return array


def file_stamp(path: Path) -> list[object]:
    """Name, size and time of a file, which change when the file is replaced."""
    status = path.stat()
    return [path.name, status.st_size, status.st_mtime_ns]
