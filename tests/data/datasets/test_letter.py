"""Letter recognition's reader on a few lines in KEEL's form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from small_sets import put_small

from fedsynth.data import registry as datasets


def test_measures_and_letters_are_read_as_they_are(monkeypatch, tmp_path: Path) -> None:
    lines = [",".join([*map(str, range(16)), letter]) for letter in ("A", "Z") for _ in range(5)]
    split = {"train": [0] * 4 + [25] * 4, "test": [0, 25]}
    put_small(monkeypatch, tmp_path, "letter", {"letter.dat": "\n".join(lines).encode()}, split)
    rows, labels = datasets.load("letter", "test", tmp_path)
    assert labels.tolist() == [0, 25]
    assert np.allclose(rows[0].flatten().numpy() * 15, np.arange(16), atol=1e-5)


def test_the_public_counts_are_the_published_ones() -> None:
    known = datasets.find("letter")
    both = [a + b for a, b in zip(known.train, known.test, strict=True)]
    assert (sum(both), both[0], both[25]) == (20_000, 789, 734)
