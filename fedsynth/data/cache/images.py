"""Large collections of pictures: decoded and made small once, then mapped into memory.

162,770 faces of 32x32 are 500 MB as bytes and two gigabytes as floats, and their JPEG files take
minutes to decode. So they are decoded once into an array of bytes beside the files, which every
process of the machine then maps: nothing is read before it is needed, and nothing is held twice.
"""

from __future__ import annotations

import hashlib
import io
import logging
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.storage.disk_cache import build_once

log = logging.getLogger(__name__)

_VERSION = 1  # of how pictures are made small
_IMAGES = "images.npy"


@dataclass(frozen=True)
class ImageArchive:
    """Picture files in a folder, or in a zip archive that holds them in a folder of some name."""

    place: Path
    inside: str = ""  # the folder in the archive

    @property
    def stamp(self) -> list[object]:
        """Tells a changed archive from the same one; a folder is known by its name alone."""
        known = self.place.stat()
        return [self.place.name, *([known.st_size, known.st_mtime_ns] if self.inside else [])]

    def reader(self) -> Callable[[str], bytes]:
        """A function from a file's name to its content."""
        if not self.inside:
            return lambda name: (self.place / name).read_bytes()
        archive = zipfile.ZipFile(self.place)
        return lambda name: archive.read(f"{self.inside}/{name}")


def decoded(folder: Path, pictures: ImageArchive, names: Sequence[str], side: int) -> np.ndarray:
    """The pictures of these names as uint8 [n, 3, side, side], mapped from a file in `folder`,
    which is made first where it is missing or was made from something else."""
    made_from = {
        "version": _VERSION,
        "pictures": pictures.stamp,
        "names": hashlib.sha256("\n".join(names).encode()).hexdigest(),
        "side": side,
    }
    try:
        build_once(folder, made_from, lambda draft: _decode_all(draft, pictures, names, side))
    except OSError as error:
        raise UserError(
            f"cannot keep decoded pictures in {folder.parent}: {error}. Name a folder you may "
            "write to with data_dir=... or the environment variable FEDSYNTH_DATA."
        ) from error
    # Copy on write: torch needs writable memory, although nothing writes to it.
    return np.load(folder / _IMAGES, mmap_mode="c")


def _decode_all(folder: Path, pictures: ImageArchive, names: Sequence[str], side: int) -> None:
    log.info("decoding %s pictures once", f"{len(names):,}")
    read = pictures.reader()
    shape = (len(names), 3, side, side)
    array = np.lib.format.open_memmap(folder / _IMAGES, "w+", np.uint8, shape)
    for index, name in enumerate(names):
        array[index] = _picture(read, name, pictures.place, side)
    array.flush()


def _picture(read: Callable[[str], bytes], name: str, place: Path, side: int) -> np.ndarray:
    """One picture as uint8 [3, side, side]: all of it, whatever its form, by bilinear filtering. A
    JPEG may be decoded at a half or a quarter of its size, but never below twice `side`."""
    from PIL import Image, UnidentifiedImageError

    try:
        content = read(name)
    except (OSError, KeyError) as error:
        raise UserError(f"there is no picture {name} in {place}.") from error
    try:
        with Image.open(io.BytesIO(content)) as image:
            image.draft("RGB", (2 * side, 2 * side))
            small = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise UserError(f"{place}: {name} is not a whole picture ({error}).") from error
    return np.asarray(small).transpose(2, 0, 1)
