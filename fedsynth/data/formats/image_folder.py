"""A folder of images as a data set: `data=file:FOLDER` with a folder per class.

    FOLDER/train/CLASS/*.png    FOLDER/test/CLASS/*.png      with test images of their own
    FOLDER/train/PARTY/CLASS/*.png                           a folder per party
    FOLDER/CLASS/*.png                                       a share is cut off to test on

PNG and JPEG, grey or colour (as the first image is). All images have one size, or `schema.yaml` in
the folder states `size: [HEIGHT, WIDTH]`, to which they are scaled.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from fedsynth.core.errors import UserError
from fedsynth.data.formats.own_facts import OwnFacts, checked, cut, image_facts, natural
from fedsynth.data.formats.schema_file import Schema, read_schema

SUFFIXES = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True)
class _Listed:
    """The images of one split by path, with the names of class and party ("" for none)."""

    files: tuple[Path, ...]
    classes: tuple[str, ...]
    parties: tuple[str, ...]


def describe(name: str, path: Path, stamp: tuple[object, ...]) -> OwnFacts:
    """The public facts, from the names of folders and files and the first image."""
    return _opened(name, path, stamp)[0]


def read(name: str, path: Path, split: str, stamp: tuple[object, ...]) -> Any:
    """Images (uint8 [n, c, h, w]) and labels of a split."""
    facts, files = _opened(name, path, stamp)
    labels = facts.train if split == "train" else facts.test
    return read_images(files[split], facts.info.shape, _size(path)), labels


@functools.lru_cache(maxsize=4)
def _opened(
    name: str, path: Path, _stamp: tuple[object, ...]
) -> tuple[OwnFacts, dict[str, tuple[Path, ...]]]:
    own_test = (path / "train").is_dir() and (path / "test").is_dir()
    train = _listed(path / "train" if own_test else path)
    classes = natural(set(train.classes))
    labels = np.array([classes.index(c) for c in train.classes], np.int64)
    files = {"train": train.files}
    parties, owners = natural(set(train.parties) - {""}), np.zeros(0, np.int64)
    if parties:
        owners = np.array([parties.index(p) for p in train.parties], np.int64)
    if own_test:
        tested = _listed(path / "test")
        for label, file in zip(tested.classes, tested.files, strict=True):
            if label not in classes:
                raise UserError(f"{file}: {path / 'train'} has no class {label!r}.")
        test_labels = np.array([classes.index(c) for c in tested.classes], np.int64)
        files["test"] = tested.files
    else:
        kept, held = cut(labels)
        files = {"train": _chosen(train.files, kept), "test": _chosen(train.files, held)}
        labels, test_labels = labels[kept], labels[held]
        owners = owners[kept] if parties else owners
    size = _size(path)
    info = image_facts(name, _shape(train.files[0], size), classes)
    seen = f"names of folders and files, and the size of {train.files[0].name}"
    return checked(OwnFacts(info, labels, test_labels, parties, owners, seen)), files


def _chosen(files: Sequence[Path], indices: np.ndarray) -> tuple[Path, ...]:
    return tuple(files[i] for i in indices)


def _listed(folder: Path) -> _Listed:
    """All images below a folder, which is two levels deep, or three with parties."""
    found: list[tuple[Path, str, str]] = []
    for outer in _folders(folder):
        inner = _folders(outer)
        images = _images(outer)
        if inner and images:
            raise UserError(
                f"{outer} holds images and folders: it must be a class (images only) or a party "
                "(a folder per class)."
            )
        if inner:
            for each in inner:
                found += [(file, each.name, outer.name) for file in _needed(each)]
        else:
            found += [(file, outer.name, "") for file in _needed(outer)]
    if not found:
        raise UserError(
            f"{folder} has no folders with images: needed is a folder per class with PNG or JPEG "
            "files, and train/ and test/ above them where test images are separate."
        )
    if len({party == "" for _, _, party in found}) > 1:
        raise UserError(f"{folder} has classes and parties side by side: give each its own level.")
    files, classes, parties = zip(*found, strict=True)
    return _Listed(files, classes, parties)


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())


def _needed(folder: Path) -> list[Path]:
    images = _images(folder)
    if not images:
        raise UserError(f"{folder} holds no image: needed are files {', '.join(SUFFIXES)}.")
    return images


def _size(path: Path) -> tuple[int, int] | None:
    schema: Schema | None = read_schema(path)
    return schema.size if schema else None


def _shape(file: Path, size: tuple[int, int] | None) -> tuple[int, int, int]:
    image = opened_image(file, str(file))
    height, width = size or (image.height, image.width)
    return channels_of(image), height, width


def channels_of(image: Image.Image) -> int:
    """1 for a grey picture and 3 for a colour one."""
    return 1 if image.mode in ("1", "L", "LA", "I", "I;16", "F") else 3


def opened_image(source: Any, place: str) -> Image.Image:
    """A picture from a file or a stream.

    Raises:
        UserError: It is none; names the place.
    """
    try:
        image = Image.open(source)
        image.load()
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError) as error:
        reason = "" if isinstance(source, Path) is False else f" ({error})"
        raise UserError(f"{place} is not a readable image{reason}.") from error
    return image


def pixels_of(
    image: Image.Image, shape: tuple[int, int, int], size: tuple[int, int] | None, place: str
) -> np.ndarray:
    """A picture as uint8 [c, h, w].

    Raises:
        UserError: It has another size, and no size is stated.
    """
    channels, height, width = shape
    if image.mode.startswith("I"):  # 16 bits per pixel
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    picture = image.convert("L" if channels == 1 else "RGB")
    if (picture.height, picture.width) != (height, width):
        if size is None:
            raise UserError(
                f"{place} is {picture.height}x{picture.width}, and the first image is "
                f"{height}x{width}. To scale all of them, state `size: [{height}, {width}]` in "
                "schema.yaml in the folder."
            )
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    array = np.asarray(picture, np.uint8)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)


def read_images(
    files: Sequence[Path], shape: tuple[int, int, int], size: tuple[int, int] | None
) -> np.ndarray:
    """These files as uint8 [n, c, h, w]."""
    images = np.empty((len(files), *shape), np.uint8)
    for index, file in enumerate(files):
        images[index] = pixels_of(opened_image(file, str(file)), shape, size, str(file))
    return images
