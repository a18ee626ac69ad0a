"""IDX files (the format of MNIST): arrays of unsigned bytes behind a short header."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.data.fetch import fetch
from fedsynth.data.fetch.known_files import IdxSet

IMAGES_MAGIC, LABELS_MAGIC = 0x803, 0x801  # unsigned bytes in three dimensions, and in one


def read(
    files: IdxSet, split: str, data_dir: str | Path | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The verified images and labels of a split, fetched first where they are missing."""
    images, labels = files.split(split)
    return (
        parse_images(fetch.read(files, images, data_dir)),
        parse_labels(fetch.read(files, labels, data_dir)),
    )


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
