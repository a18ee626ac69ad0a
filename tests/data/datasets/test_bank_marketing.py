"""Bank marketing's reader on a few lines in UCI's form."""

from __future__ import annotations

from pathlib import Path

from small_sets import put_small

from fedsynth.data import registry as datasets
from fedsynth.data.datasets.bank_marketing import COLUMNS
from fedsynth.data.tables import decode_column

HEADER = ";".join(f'"{column.name}"' for column in COLUMNS) + ';"y"'
CALL = '56;"housemaid";"married";"basic.4y";"no";"no";"no";"telephone";"may";"mon";261;1;999;0;'
CALL += '"nonexistent";1.1;93.994;-36.4;4.857;5191;'


def test_a_call_is_read_as_it_is(monkeypatch, tmp_path: Path) -> None:
    lines = [HEADER, *[f'{CALL}"no"'] * 5, *[f'{CALL}"yes"'] * 5]
    split = {"train": [0] * 4 + [1] * 4, "test": [0, 1]}
    contents = {"bank-additional-full.csv": "\n".join(lines).encode()}
    put_small(monkeypatch, tmp_path, "bank_marketing", contents, split)
    rows, labels = datasets.load("bank_marketing", "test", tmp_path)
    assert labels.tolist() == [0, 1]
    told = [decode_column(c, rows[0, i].flatten())[0] for i, c in enumerate(COLUMNS)]
    for text, printed in zip(told, CALL.replace('"', "").split(";"), strict=False):
        assert text == printed or abs(float(text) - float(printed)) < 1e-3


def test_the_public_counts_are_those_of_all_calls() -> None:
    known = datasets.find("bank_marketing")
    assert sum(known.train) + sum(known.test) == 41188
    assert known.train[1] + known.test[1] == 4640
