"""German credit (Hofmann, 1994): 1,000 customers of a bank, classified as good or bad risks; seven
numeric columns and thirteen categorical ones, with the codes of the published description.

Read from UCI's german.data. The ranges are public bounds that are wider than the records. There is
no published split: a fifth of each class is for testing, by a public random order.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsynth.core.types import Column
from fedsynth.data.fetch import fetch, known_files
from fedsynth.data.formats.own_facts import cut
from fedsynth.data.registry import dataset
from fedsynth.data.tables import encode, table_info


def _codes(prefix: int, count: int, start: int = 1) -> tuple[str, ...]:
    """The codes of an attribute: A11, A12, ..."""
    return tuple(f"A{prefix}{number}" for number in range(start, start + count))


COLUMNS = (
    Column("checking account", categories=_codes(1, 4)),
    Column("duration in months", 1, 84, whole=True),
    Column("credit history", categories=_codes(3, 5, start=0)),
    Column("purpose", categories=_codes(4, 11, start=0)),
    Column("credit amount", 0, 20_000, whole=True),
    Column("savings", categories=_codes(6, 5)),
    Column("employed since", categories=_codes(7, 5)),
    Column("installment rate", 1, 4, whole=True),
    Column("status and sex", categories=_codes(9, 5)),
    Column("other debtors", categories=_codes(10, 3)),
    Column("resident since", 1, 4, whole=True),
    Column("property", categories=_codes(12, 4)),
    Column("age", 18, 90, whole=True),
    Column("other plans", categories=_codes(14, 3)),
    Column("housing", categories=_codes(15, 3)),
    Column("credits here", 1, 4, whole=True),
    Column("job", categories=_codes(17, 4)),
    Column("people liable", 1, 2, whole=True),
    Column("telephone", categories=_codes(19, 2)),
    Column("foreign worker", categories=_codes(20, 2)),
)
RISKS = ("good", "bad")  # the codes 1 and 2


@dataset(
    table_info("german_credit", COLUMNS, 2, class_names=RISKS),
    train=(560, 240),
    test=(140, 60),
    about="German credit: a table of 1,000 bank customers, 20 columns; label: good or bad risk",
)
def german_credit(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """UCI's file, its records cut in two."""
    (known,) = known_files.GERMAN_CREDIT.files
    text = fetch.read(known_files.GERMAN_CREDIT, known, data_dir).decode("ascii")
    *columns, codes = zip(*(line.split() for line in text.splitlines() if line), strict=True)
    labels = np.array([int(code) - 1 for code in codes], np.int64)
    chosen = cut(labels)[split == "test"]
    return encode(COLUMNS, columns, known.name)[chosen], labels[chosen]
