"""Large collections of image files: decoded and resized once, then mapped into memory.

162,770 faces of 32x32 are 500 MB as bytes and two gigabytes as floats, and their JPEG files take
minutes to decode. They are therefore decoded once into an array of bytes beside the files, which
every process of the machine maps.
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
from fedsynth.data.cache import memmap_cache

log = logging.getLogger(__name__)

_VERSION = 1  # of the resizing
_IMAGES = "images.npy"


@dataclass(frozen=True)
class ImageArchive:
    """Image files in a folder, or in a folder of a zip archive."""

    path: Path
    inside: str = ""  # the folder in the archive; empty: `path` is a folder

    @property
    def stamp(self) -> list[object]:
        """Identifies an archive by name, size and time, and a folder by its name alone."""
        return memmap_cache.file_stamp(self.path) if self.inside else [self.path.name]

    def reader(self) -> Callable[[str], bytes]:
        """A function from the name of a file to its content."""
        if not self.inside:
            return lambda name: (self.path / name).read_bytes()
        archive = zipfile.ZipFile(self.path)
        return lambda name: archive.read(f"{self.inside}/{name}")


def decoded(folder: Path, archive: ImageArchive, names: Sequence[str], side: int) -> np.ndarray:
    """The images of these names as uint8 [n, 3, side, side], mapped from a file in `folder`.

    The file is built first where it is missing or was built from other sources.

    Raises:
        UserError: An image is missing or damaged, or the folder cannot be written.
    """
    made_from = {
        "version": _VERSION,
        "pictures": archive.stamp,
        "names": hashlib.sha256("\n".join(names).encode()).hexdigest(),
        "side": side,
    }
    memmap_cache.build(
        folder,
        made_from,
        lambda draft: _decode_all(draft, archive, names, side),
        "decoded images",
    )
    return memmap_cache.open_mapped(folder / _IMAGES)


def _decode_all(folder: Path, archive: ImageArchive, names: Sequence[str], side: int) -> None:
    log.info("decoding %s images once", f"{len(names):,}")
    read = archive.reader()
    array = memmap_cache.create(folder / _IMAGES, (len(names), 3, side, side))
    for index, name in enumerate(names):
        array[index] = _decode(read, name, archive.path, side)
    array.flush()


def _decode(read: Callable[[str], bytes], name: str, path: Path, side: int) -> np.ndarray:
    """One image as uint8 [3, side, side], resized as a whole by bilinear filtering.

    A JPEG may be decoded at half or a quarter of its size, but not below twice `side`."""
    from PIL import Image, UnidentifiedImageError

    try:
        content = read(name)
    except (OSError, KeyError) as error:
        raise UserError(f"there is no image {name} in {path}.") from error
    try:
        with Image.open(io.BytesIO(content)) as image:
            image.draft("RGB", (2 * side, 2 * side))
            small = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise UserError(f"{path}: {name} is not a complete image ({error}).") from error
    return np.asarray(small).transpose(2, 0, 1)
