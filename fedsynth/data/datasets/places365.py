"""Places365 as three classes of scenes at 64x64, in the form of DataLens.

DataLens takes "three level-2 classes" of the scene hierarchy, 120,000 images, and does not say
which. Here a class is eight categories of one group of the hierarchy (`CLASSES`), of which the
standard training list has up to 5,000 images each. The published validation part is tested on.
Read as torchvision keeps it, in the folder `places365` of the data directory: the lists, and the
images of 256 pixels or the large ones. Each image is resized as a whole to 64x64.
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

SIDE = 64
HALF = (0.5,) * 3
CATEGORIES = VerifiedFile("categories_places365.txt", md5="06c963b85866bd0649f97cb43dd16673")
LISTS = {
    "train": VerifiedFile("places365_train_standard.txt", md5="30f37515461640559006b8329efbed1a"),
    "test": VerifiedFile("places365_val.txt", md5="e9f2fd57bfd9d07630173f4e8708e4b1"),
}
FOLDERS = {  # where torchvision, or the published archive, puts the images
    "train": ("data_256_standard", "data_256", "data_large_standard", "data_large"),
    "test": ("val_256", "val_large"),
}
CLASSES = {
    "home or hotel": (
        *("/b/bedroom", "/l/living_room", "/k/kitchen", "/b/bathroom"),
        *("/d/dining_room", "/h/hotel_room", "/n/nursery", "/c/childs_room"),
    ),
    "water, ice, snow": (
        *("/b/beach", "/c/coast", "/g/glacier", "/i/iceberg"),
        *("/l/lake/natural", "/o/ocean", "/r/river", "/w/waterfall"),
    ),
    "cities and towns": (
        *("/d/downtown", "/s/skyscraper", "/s/street", "/o/office_building"),
        *("/m/market/outdoor", "/p/plaza", "/a/alley", "/c/crosswalk"),
    ),
}
Labelled = tuple[list[str], np.ndarray]  # names of the images, and their labels


def _counts(split: str, data_dir: str | Path | None) -> tuple[int, ...]:
    labels = listed(split, _folder(data_dir))[1]
    return tuple(np.bincount(labels, minlength=len(CLASSES)).tolist())


@dataset(
    DatasetInfo("places365", (3, SIDE, SIDE), len(CLASSES), HALF, HALF),
    train=(),
    test=(),
    counted=_counts,
    about=f"Places365: photographs, 64x64 RGB; {'; '.join(CLASSES)} (eight categories each)",
)
def places365(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The images of the chosen categories, in the order of the published list."""
    folder = _folder(data_dir)
    names, labels = listed(split, folder)
    for name in FOLDERS[split]:
        if (folder / name).is_dir():
            target = folder / "decoded" / f"places365-{split}"
            return decoded(target, ImageArchive(folder / name), names, SIDE), labels
    raise UserError(_advice(folder, " and ".join(FOLDERS[split])))


@functools.lru_cache(maxsize=4)
def listed(split: str, folder: Path) -> Labelled:
    """The names of the images of the chosen categories, and their classes."""
    numbers = dict(line.split() for line in _list(folder, CATEGORIES))
    labels = {
        numbers[category]: label
        for label, categories in enumerate(CLASSES.values())
        for category in categories
    }
    pairs = (line.split() for line in _list(folder, LISTS[split]))
    chosen = [(name.lstrip("/"), labels[number]) for name, number in pairs if number in labels]
    return [name for name, _ in chosen], np.array([label for _, label in chosen], np.int64)


def _folder(data_dir: str | Path | None) -> Path:
    return data_directory(data_dir) / "places365"


def _list(folder: Path, known: VerifiedFile) -> list[str]:
    return read_list(folder / known.name, known, _advice(folder, known.name))


def _advice(folder: Path, missing: str) -> str:
    return (
        f"the data set Places365 cannot be had. Tried:\n  - {folder}: lacks {missing}\n"
        f"What to do: unpack filelist_places365-standard.tar ({CATEGORIES.name}, "
        f"{LISTS['train'].name} and {LISTS['test'].name}), train_256_places365standard.tar "
        f"(as {FOLDERS['train'][0]}) and val_256.tar (as {FOLDERS['test'][0]}) into {folder}; "
        f"torchvision.datasets.Places365({str(folder)!r}, small=True, download=True) does so. Or "
        "use data=made_colour, a small made-up data set that needs no files."
    )
