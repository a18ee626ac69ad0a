"""Files of one's own, really written: folders of pictures, tables with schemas, saved data sets."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image

SCHEMA = """\
columns:
  age: {range: [0, 120], whole: true, missing: 50}
  ward: {categories: [north, south]}
  outcome: {categories: [healthy, ill]}
  hospital: {categories: [city, lake, hill]}
  id: ignore
label: outcome
party: hospital
"""
HEADER = ["age", "ward", "outcome", "hospital", "id"]


def picture(seed: int, side: int = 8, colour: bool = False) -> Image.Image:
    """A picture of random pixels."""
    shape = (side, side, 3) if colour else (side, side)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def write_pictures(folder: Path, count: int, side: int = 8, colour: bool = False) -> None:
    """PNG files 0.png, 1.png, ... in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        picture(index, side, colour).save(folder / f"{index}.png")


def write_hospitals(folder: Path) -> Path:
    """Pictures of two classes in two hospitals, with test pictures of their own."""
    for party, count in (("city", 6), ("lake", 4)):
        for label in ("benign", "malignant"):
            write_pictures(folder / "train" / party / label, count)
    for label in ("benign", "malignant"):
        write_pictures(folder / "test" / label, 3)
    return folder


def visits(count: int = 60) -> list[list[object]]:
    """Rows of a table of visits; every third is of one hospital."""
    rng = np.random.default_rng(0)
    wards, outcomes, hospitals = ("north", "south"), ("healthy", "ill"), ("city", "lake", "hill")
    return [
        [int(rng.integers(18, 90)), wards[i % 2], outcomes[i // 2 % 2], hospitals[i % 3], i]
        for i in range(count)
    ]


def write_csv(path: Path, rows: list[list[object]], header: list[str] = HEADER) -> Path:
    """A CSV file with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_visits(folder: Path, schema: str = SCHEMA) -> Path:
    """The table of visits with its schema."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "visits.schema.yaml").write_text(schema)
    return write_csv(folder / "visits.csv", visits())
