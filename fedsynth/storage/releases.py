"""Outcomes as files: npz archives that `np.load(..., allow_pickle=False)` reads, and pictures.

The same outcome always gives the same bytes, so two runs are compared with `cmp`.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import Outcome, ReleasedModel, SyntheticSet

WIDTH_KEY = "fedsynth.width"
COLUMNS = 10
TILE_PIXELS = 56
GAP = 2


def archive(outcome: Outcome) -> bytes:
    """The npz archive of an outcome. Object arrays, hence pickles, are refused."""
    if isinstance(outcome, SyntheticSet):
        arrays = {name: _numpy(tensor) for name, tensor in outcome.to_arrays().items()}
    else:
        if WIDTH_KEY in outcome.state:
            raise ValueError(f"a model's array may not be called {WIDTH_KEY!r}")
        arrays = {name: _numpy(tensor) for name, tensor in outcome.state.items()}
        arrays[WIDTH_KEY] = np.asarray(outcome.width, dtype=np.int64)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, array in arrays.items():
            # A ZipInfo of our own carries no clock time: equal arrays give equal bytes.
            with file.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()


def unarchive(path: Path) -> Outcome:
    """Read what `archive` wrote; a damaged or foreign file is a `UserError`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: torch.from_numpy(np.array(file[name])) for name in file.files}
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read as a release: {error}") from error
    if WIDTH_KEY in arrays:
        width = int(arrays.pop(WIDTH_KEY))
        return ReleasedModel(arrays, width)
    try:
        return SyntheticSet.from_arrays(arrays)
    except ValueError as error:
        raise UserError(f"{path} is not a release: {error}.") from error


def is_table(outcome: SyntheticSet) -> bool:
    """Whether these are rows of a table, of which there is no picture."""
    return tuple(outcome.images.shape[2:]) == (1, 1)


def contact_sheet(outcome: SyntheticSet, tile_pixels: int = TILE_PIXELS) -> np.ndarray:
    """A picture of a synthetic set: one row a class, its first ten images, clamped to [0, 1].

    Images are enlarged by a whole factor, to about `tile_pixels`; 0 leaves them as they are.
    Returns uint8 [height, width] for grey images and [height, width, 3] for colour.
    """
    images = grey_or_colour(outcome.images)
    labels = _numpy(outcome.labels)
    factor = max(1, round(tile_pixels / max(images.shape[1:3])))
    tiles = images.repeat(factor, axis=1).repeat(factor, axis=2)
    classes = np.unique(labels)
    height, width, channels = tiles.shape[1:]
    rows = max(1, len(classes))
    sheet = np.ones(
        (rows * (height + GAP) + GAP, COLUMNS * (width + GAP) + GAP, channels), dtype=np.float32
    )
    for row, label in enumerate(classes):
        for column, index in enumerate(np.flatnonzero(labels == label)[:COLUMNS]):
            top, left = GAP + row * (height + GAP), GAP + column * (width + GAP)
            sheet[top : top + height, left : left + width] = tiles[index]
    grey = (sheet * 255).round().astype(np.uint8)
    return grey[:, :, 0] if channels == 1 else grey


def grey_or_colour(images: torch.Tensor) -> np.ndarray:
    """Images, floats or bytes, as they can be shown: float32 [n, height, width, 1 or 3] in [0, 1].

    Numbers of channels other than three are averaged to grey; what is not a number is black.
    """
    full = 255 if images.dtype == torch.uint8 else 1
    shown = np.nan_to_num(_numpy(images).astype(np.float32) / full).clip(0.0, 1.0)
    if shown.shape[1] != 3:
        shown = shown.mean(axis=1, keepdims=True)
    return shown.transpose(0, 2, 3, 1)


def png(picture: np.ndarray) -> bytes:
    """Encode a uint8 picture as PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().contiguous().numpy()
