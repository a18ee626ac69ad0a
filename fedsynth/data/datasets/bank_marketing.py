"""Bank marketing (Moro, Cortez and Rita, 2014): 41,188 telephone calls of a Portuguese bank,
classified by whether the customer subscribed a deposit; ten numeric and ten categorical columns.

Read from UCI's bank-additional-full.csv. The categories are those of the published description, the
ranges public bounds that are wider than the records. There is no published split: a fifth of each
class is for testing, by a public random order. The length of the call is known only after it and
predicts the answer; `ignore` it by a schema of your own where that matters.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from fedsynth.core.types import Column
from fedsynth.data.fetch import fetch, known_files
from fedsynth.data.formats.own_facts import cut
from fedsynth.data.registry import dataset
from fedsynth.data.tables import encode, table_info

_YES_NO = ("no", "yes", "unknown")
COLUMNS = (
    Column("age", 16, 100, whole=True),
    Column(
        "job",
        categories=(
            *("admin.", "blue-collar", "entrepreneur", "housemaid", "management", "retired"),
            *("self-employed", "services", "student", "technician", "unemployed", "unknown"),
        ),
    ),
    Column("marital", categories=("divorced", "married", "single", "unknown")),
    Column(
        "education",
        categories=(
            *("basic.4y", "basic.6y", "basic.9y", "high.school", "illiterate"),
            *("professional.course", "university.degree", "unknown"),
        ),
    ),
    Column("default", categories=_YES_NO),
    Column("housing", categories=_YES_NO),
    Column("loan", categories=_YES_NO),
    Column("contact", categories=("cellular", "telephone")),
    Column(
        "month",
        categories=(
            *("jan", "feb", "mar", "apr", "may", "jun"),
            *("jul", "aug", "sep", "oct", "nov", "dec"),
        ),
    ),
    Column("day_of_week", categories=("mon", "tue", "wed", "thu", "fri")),
    Column("duration", 0, 5000, whole=True),
    Column("campaign", 1, 60, whole=True),
    Column("pdays", 0, 999, whole=True),
    Column("previous", 0, 10, whole=True),
    Column("poutcome", categories=("failure", "nonexistent", "success")),
    Column("emp.var.rate", -5, 5),
    Column("cons.price.idx", 90, 100),
    Column("cons.conf.idx", -60, 0),
    Column("euribor3m", 0, 6),
    Column("nr.employed", 4900, 5300),
)
ANSWERS = ("no", "yes")


@dataset(
    table_info("bank_marketing", COLUMNS, 2, class_names=ANSWERS),
    train=(29238, 3712),
    test=(7310, 928),
    about="Bank marketing: a table of 41,188 calls of a bank, 20 columns; label: deposit or not",
)
def bank_marketing(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """UCI's file with all records, cut in two."""
    (known,) = known_files.BANK_MARKETING.files
    text = fetch.read(known_files.BANK_MARKETING, known, data_dir).decode("utf-8")
    _, *records = csv.reader(io.StringIO(text), delimiter=";")
    *columns, answers = zip(*records, strict=True)
    labels = np.array([ANSWERS.index(answer) for answer in answers], np.int64)
    chosen = cut(labels)[split == "test"]
    return encode(COLUMNS, columns, known.name)[chosen], labels[chosen]
