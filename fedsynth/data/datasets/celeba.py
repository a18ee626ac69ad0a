"""CelebA's aligned faces at 32x32, by gender or by the colour of their hair.

Read as torchvision keeps it, in the folder `celeba` of the data directory: img_align_celeba (the
folder, or img_align_celeba.zip), list_attr_celeba.txt and list_eval_partition.txt. It is
published on Google Drive only, so nothing is fetched. The published training and test parts are
used, the validation part is not. Each image is resized as a whole to 32x32, bilinearly.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.data.cache.images import ImageArchive, decoded
from fedsynth.data.fetch.fetch import data_directory
from fedsynth.data.fetch.known_files import VerifiedFile, read_list
from fedsynth.data.registry import dataset

SIDE = 32
HALF = (0.5,) * 3
FOLDER = "img_align_celeba"
ATTRIBUTES = VerifiedFile("list_attr_celeba.txt", md5="75e246fa4810816ffd6ee81facbd244c")
PARTITION = VerifiedFile("list_eval_partition.txt", md5="d32c9cbf5e040fd4025c592c306e6668")
PARTS = {"train": 0, "test": 2}
HAIR = ("Black_Hair", "Blond_Hair", "Brown_Hair")
Labelled = tuple[list[str], np.ndarray]  # names of the images, and their labels


@dataset(
    DatasetInfo("celeba_gender", (3, SIDE, SIDE), 2, HALF, HALF),
    train=(94509, 68261),
    test=(12247, 7715),
    about="CelebA: 182,732 faces, 32x32 RGB; female or male",
)
def celeba_gender(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """All faces of the part; class 1 is CelebA's attribute Male."""
    return _read("celeba_gender", split, data_dir, by_gender(split, _folder(data_dir)))


def _hair_counts(split: str, data_dir: str | Path | None) -> tuple[int, ...]:
    labels = by_hair(split, _folder(data_dir))[1]
    return tuple(np.bincount(labels, minlength=len(HAIR)).tolist())


@dataset(
    DatasetInfo("celeba_hair", (3, SIDE, SIDE), 3, HALF, HALF),
    train=(),
    test=(),
    counted=_hair_counts,
    about="CelebA: faces with black, blond or brown hair, 32x32 RGB",
)
def celeba_hair(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The faces of the part that have just one of the three attributes."""
    return _read("celeba_hair", split, data_dir, by_hair(split, _folder(data_dir)))


@functools.lru_cache(maxsize=8)
def by_gender(split: str, folder: Path) -> Labelled:
    """The images of a part, and whether CelebA labels them Male."""
    names, values = _attributes(folder, ("Male",))
    return _part(split, folder, names, (values[:, 0] > 0).astype(np.int64), values[:, 0] != 0)


@functools.lru_cache(maxsize=8)
def by_hair(split: str, folder: Path) -> Labelled:
    """The images of a part with exactly one of the three hair colours."""
    names, values = _attributes(folder, HAIR)
    has = values > 0
    return _part(split, folder, names, has.argmax(1), has.sum(1) == 1)


def _part(
    split: str, folder: Path, names: list[str], labels: np.ndarray, fits: np.ndarray
) -> Labelled:
    """The images of the split for which `fits` holds."""
    part = dict(line.split() for line in _list(folder, PARTITION))
    wanted = str(PARTS[split])
    chosen = [k for k, name in enumerate(names) if fits[k] and part.get(name) == wanted]
    return [names[k] for k in chosen], labels[chosen].astype(np.int64)


@functools.lru_cache(maxsize=4)
def _attributes(folder: Path, wanted: tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    """The names of all images, and some of their attributes: int8 [n, attributes], 1 or -1."""
    _, header, *lines = _list(folder, ATTRIBUTES)
    columns = [header.split().index(name) + 1 for name in wanted]
    fields = [line.split() for line in lines]
    values = np.array([[int(record[column]) for column in columns] for record in fields], np.int8)
    return [record[0] for record in fields], values


def _folder(data_dir: str | Path | None) -> Path:
    return data_directory(data_dir) / "celeba"


def _list(folder: Path, known: VerifiedFile) -> list[str]:
    return read_list(folder / known.name, known, _advice(folder, known.name))


def _read(
    name: str, split: str, data_dir: str | Path | None, labelled: Labelled
) -> tuple[np.ndarray, np.ndarray]:
    folder = _folder(data_dir)
    archive = folder / f"{FOLDER}.zip"
    if (folder / FOLDER).is_dir():
        images = ImageArchive(folder / FOLDER)
    elif archive.is_file():
        images = ImageArchive(archive, FOLDER)
    else:
        raise UserError(_advice(folder, f"{FOLDER} and {archive.name}"))
    names, labels = labelled
    return decoded(folder / "decoded" / f"{name}-{split}", images, names, SIDE), labels


def _advice(folder: Path, missing: str) -> str:
    return (
        f"the data set CelebA cannot be had. Tried:\n  - {folder}: lacks {missing}\n"
        f"What to do: from its published Google Drive folder (torchvision.datasets.CelebA with "
        f"download=True fetches it) put {FOLDER}.zip (or its folder), {ATTRIBUTES.name} and "
        f"{PARTITION.name} into {folder}, or use data=made_colour, a small made-up data set that "
        "needs no files."
    )
