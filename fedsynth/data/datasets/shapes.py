"""`shapes`, a synthetic data set: line figures with jitter, drawn from a fixed key.

For tests and for a first run without a network. It is never used in place of data that cannot be
found.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from fedsynth.core.errors import unknown
from fedsynth.core.randomness import numpy_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.data.registry import dataset

SIZE = 28
SIZES = {"train": 200, "test": 40}  # images per class
MEAN, STD = (0.1025,), (0.2357,)

Points = tuple[tuple[float, float], ...]


def _polygon(corners: int, turn: float = 0.0) -> Points:
    angles = turn + 2 * np.pi * np.arange(corners + 1) / corners
    return tuple(zip(np.sin(angles).tolist(), (-np.cos(angles)).tolist(), strict=True))


# Each figure is one or more strokes; a stroke joins points of the square [-1, 1] x [-1, 1], y down.
FIGURES: dict[str, tuple[Points, ...]] = {
    "ring": (_polygon(24),),
    "bar": (((0, -1), (0, 1)),),
    "dash": (((-1, 0), (1, 0)),),
    "plus": (((0, -1), (0, 1)), ((-1, 0), (1, 0))),
    "cross": (((-0.8, -0.8), (0.8, 0.8)), ((-0.8, 0.8), (0.8, -0.8))),
    "box": (_polygon(4, np.pi / 4),),
    "triangle": (_polygon(3),),
    "tee": (((-0.9, -0.9), (0.9, -0.9)), ((0, -0.9), (0, 1))),
    "hook": (((-0.8, -0.9), (-0.8, 0.9), (0.8, 0.9)),),
    "zed": (((-0.8, -0.9), (0.8, -0.9), (-0.8, 0.9), (0.8, 0.9)),),
}
CLASSES = len(FIGURES)


@dataset(
    DatasetInfo("shapes", (1, SIZE, SIZE), CLASSES, MEAN, STD),
    train=(SIZES["train"],) * CLASSES,
    test=(SIZES["test"],) * CLASSES,
    about="made-up shapes: 2,400 images drawn by a program, 28x28 grey; for tests and first tries",
    made=True,
)
def shapes(split: str, _data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The same images at each call; needs no files."""
    if split not in SIZES:
        raise unknown("split", split, SIZES)
    rng = numpy_generator("shapes", split)
    images = np.concatenate([figure(s, SIZES[split], rng) for s in FIGURES.values()])
    labels = np.repeat(np.arange(CLASSES), SIZES[split])
    order = rng.permutation(len(labels))
    return images[order], labels[order]


def figure(strokes: tuple[Points, ...], n: int, rng: np.random.Generator) -> np.ndarray:
    """n images of one figure, with random rotation, stretch, shift, line width and brightness."""
    turn = rng.uniform(-0.25, 0.25, n)
    scale = rng.uniform(6.0, 10.0, (n, 2))
    centre = (SIZE - 1) / 2 + rng.uniform(-2.5, 2.5, (n, 2))
    half_width = rng.uniform(0.8, 1.8, (n, 1, 1))
    brightness = rng.uniform(0.6, 1.0, (n, 1, 1))
    distance = np.full((n, SIZE, SIZE), np.inf)
    for stroke in strokes:
        points = [_position(np.array(p), turn, scale, centre) for p in stroke]
        for start, end in pairwise(points):
            distance = np.minimum(distance, _distance_to_segment(start, end))
    ink = np.clip(half_width + 0.5 - distance, 0, 1) * brightness
    grain = rng.normal(0, 0.03, ink.shape)
    return np.rint(255 * np.clip(ink + grain, 0, 1)).astype(np.uint8)[:, None]


def _position(
    point: np.ndarray, turn: np.ndarray, scale: np.ndarray, centre: np.ndarray
) -> np.ndarray:
    """The position of a point of the figure in each of n images: [n, 2], in pixels."""
    x, y = (point * scale).T
    turned = np.stack([x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)], 1)
    return turned + centre


def _distance_to_segment(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The distance of each pixel from the segment in its image: [n, SIZE, SIZE]."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    pixels = np.stack([columns, rows], -1)[None] - start[:, None, None]
    along = (end - start)[:, None, None]
    position = np.clip((pixels * along).sum(-1) / (along**2).sum(-1), 0, 1)
    return np.linalg.norm(pixels - position[..., None] * along, axis=-1)
