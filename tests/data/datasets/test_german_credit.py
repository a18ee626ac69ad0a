"""German credit's reader on a few lines in UCI's form."""

from __future__ import annotations

from pathlib import Path

from small_sets import put_small

from fedsynth.data import registry as datasets
from fedsynth.data.tables import decode_column

LINE = "A11 6 A34 A43 1169 A65 A75 4 A93 A101 4 A121 67 A143 A152 2 A173 1 A192 A201 1"
OTHER = "A12 48 A32 A410 5951 A61 A73 2 A92 A101 2 A121 22 A143 A152 1 A173 1 A191 A201 2"


def test_codes_and_numbers_are_read_as_they_are(monkeypatch, tmp_path: Path) -> None:
    content = "\n".join([LINE] * 5 + [OTHER] * 5).encode()
    split = {"train": [0] * 4 + [1] * 4, "test": [0, 1]}
    put_small(monkeypatch, tmp_path, "german_credit", {"german.data": content}, split)
    rows, labels = datasets.load("german_credit", "test", tmp_path)
    info = datasets.find("german_credit").info
    assert labels.tolist() == [0, 1]
    assert [info.class_text(label) for label in labels.tolist()] == ["good", "bad"]
    for row, line in zip(rows, (LINE, OTHER), strict=True):
        told = [decode_column(c, row[i : i + 1].flatten())[0] for i, c in enumerate(info.columns)]
        assert told == line.split()[:-1]
    assert len(datasets.load("german_credit", "train", tmp_path)[1]) == 8


def test_the_public_counts_are_those_of_a_thousand_customers() -> None:
    known = datasets.find("german_credit")
    assert (sum(known.train), sum(known.test)) == (800, 200)
    assert known.train[0] + known.test[0] == 700
