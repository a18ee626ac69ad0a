"""Pictures of synthetic sets."""

from __future__ import annotations

import io

import numpy as np
import torch

from fedsynth.core.outcomes import SyntheticSet

COLUMNS = 10  # images per class in a contact sheet
TILE_PIXELS = 56
GAP = 2


def is_table(outcome: SyntheticSet) -> bool:
    """True if the set holds rows of a table, which have no picture."""
    return tuple(outcome.images.shape[2:]) == (1, 1)


def contact_sheet(outcome: SyntheticSet, tile_pixels: int = TILE_PIXELS) -> np.ndarray:
    """A picture of a synthetic set: one row per class, its first ten images, clamped to [0, 1].

    Images are enlarged by a whole factor, to about `tile_pixels`; 0 leaves them as they are.
    Returns uint8 [height, width] for grey images and [height, width, 3] for colour.
    """
    labels = outcome.labels.numpy(force=True)
    classes = np.unique(labels)
    rows_of_class = [np.flatnonzero(labels == label)[:COLUMNS] for label in classes]
    shown = np.concatenate([np.empty(0, np.int64), *rows_of_class])
    images = grey_or_colour(outcome.images[torch.from_numpy(shown)])
    factor = max(1, round(tile_pixels / max(images.shape[1:3])))
    tiles = images.repeat(factor, axis=1).repeat(factor, axis=2)
    height, width, channels = tiles.shape[1:]
    rows = max(1, len(classes))
    sheet = np.ones(
        (rows * (height + GAP) + GAP, COLUMNS * (width + GAP) + GAP, channels), dtype=np.float32
    )
    next_tiles = iter(tiles)
    for row, chosen in enumerate(rows_of_class):
        for column in range(len(chosen)):
            top, left = GAP + row * (height + GAP), GAP + column * (width + GAP)
            sheet[top : top + height, left : left + width] = next(next_tiles)
    grey = (sheet * 255).round().astype(np.uint8)
    return grey[:, :, 0] if channels == 1 else grey


def grey_or_colour(images: torch.Tensor) -> np.ndarray:
    """Images, floats or bytes, for display: float32 [n, height, width, 1 or 3] in [0, 1].

    Numbers of channels other than three are averaged to grey; what is not a number is black.
    """
    full = 255 if images.dtype == torch.uint8 else 1
    shown = np.nan_to_num(images.numpy(force=True).astype(np.float32) / full).clip(0.0, 1.0)
    if shown.shape[1] != 3:
        shown = shown.mean(axis=1, keepdims=True)
    return shown.transpose(0, 2, 3, 1)


def png(picture: np.ndarray) -> bytes:
    """Encode a uint8 picture as PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()
