"""`made_colour`, a synthetic set: the figures of `shapes` in colours that hint at the class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsynth.core.errors import unknown
from fedsynth.core.randomness import numpy_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.data.datasets import shapes
from fedsynth.data.registry import dataset

SIZES = {"train": 120, "test": 40}  # images per class
EDGE = 2  # pixels around a figure of 28 pixels
MEAN, STD = (0.1614, 0.1553, 0.1629), (0.1467, 0.1438, 0.1475)


@dataset(
    DatasetInfo("made_colour", (3, 32, 32), shapes.CLASSES, MEAN, STD),
    train=(SIZES["train"],) * shapes.CLASSES,
    test=(SIZES["test"],) * shapes.CLASSES,
    about="made-up shapes in colour: 1,600 images drawn by a program, 32x32 RGB; for tests",
    made=True,
)
def made_colour(split: str, _data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The same images at each call; needs no files."""
    if split not in SIZES:
        raise unknown("split", split, SIZES)
    rng, n = numpy_generator("made_colour", split), SIZES[split]
    images = [
        _coloured(shapes.figure(strokes, n, rng), class_index / shapes.CLASSES, rng)
        for class_index, strokes in enumerate(shapes.FIGURES.values())
    ]
    labels = np.repeat(np.arange(shapes.CLASSES), n)
    order = rng.permutation(len(labels))
    return np.concatenate(images)[order], labels[order]


def _coloured(figures: np.ndarray, hue: float, rng: np.random.Generator) -> np.ndarray:
    """Grey figures [n, 1, 28, 28] as ink of about this hue on paper of a random colour."""
    n = len(figures)
    edge = ((0, 0), (0, 0), (EDGE, EDGE), (EDGE, EDGE))
    ink = np.pad(figures, edge) / 255
    ink_colour = _colours(hue + rng.normal(0, 0.15, n), rng.uniform(0.5, 1.0, n))
    paper = _colours(rng.uniform(0, 1, n), rng.uniform(0.0, 0.5, n))
    light = np.linspace(0.8, 1.2, ink.shape[-1])[None, None, None]  # from left to right
    mixed = (ink * ink_colour + (1 - ink) * paper) * light + rng.normal(0, 0.03, (n, 3, 32, 32))
    return np.rint(255 * mixed.clip(0, 1)).astype(np.uint8)


def _colours(hue: np.ndarray, brightness: np.ndarray) -> np.ndarray:
    """RGB colours [n, 3, 1, 1] of these hues (1 is a full circle) and brightnesses."""
    turns = hue[:, None] + np.array([0, 1 / 3, 2 / 3])
    rgb = (0.55 + 0.45 * np.cos(2 * np.pi * turns)) * brightness[:, None]
    return rgb[:, :, None, None]
