"""Optical digits' reader on a few lines in KEEL's form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from small_sets import put_small

from fedsynth.data import registry as datasets


def test_blocks_become_bytes_in_their_places(monkeypatch, tmp_path: Path) -> None:
    digit = [(index * 3) % 17 for index in range(64)]
    lines = [",".join(map(str, [*digit, label])) for label in (0, 7) for _ in range(5)]
    split = {"train": [0] * 4 + [7] * 4, "test": [0, 7]}
    content = "\n".join(lines).encode()
    put_small(monkeypatch, tmp_path, "optdigits", {"optdigits.dat": content}, split)
    images, labels = datasets.load("optdigits", "test", tmp_path)
    assert labels.tolist() == [0, 7]
    back = np.rint(images[1, 0].numpy().astype(float) * 16 / 255)
    assert back.flatten().tolist() == digit
    assert images.max() == 255


def test_the_public_counts_are_those_of_both_published_parts() -> None:
    known = datasets.find("optdigits")
    assert sum(known.train) + sum(known.test) == 3823 + 1797
