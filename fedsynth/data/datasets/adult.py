"""Adult (Becker and Kohavi, 1996): 48,842 people of the US census of 1994, classified by whether
they earned more than 50,000 dollars; eight categorical columns and six numeric ones.

Read from UCI's adult.data and adult.test, or from one adult.csv with a header that holds both, the
training records first. Unknown values ("?") are a category of their own, so no record is dropped.
Ranges and categories are those of the published description.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.types import Column
from fedsynth.data.fetch import fetch, known_files
from fedsynth.data.registry import dataset
from fedsynth.data.tables import encode, table_info


def _split(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


COLUMNS = (
    Column("age", 17, 90, whole=True),
    Column(
        "workclass",
        categories=_split(
            "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, "
            "Without-pay, Never-worked, ?"
        ),
    ),
    Column("fnlwgt", 12285, 1490400, whole=True),
    Column(
        "education",
        categories=_split(
            "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, "
            "7th-8th, 12th, Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool"
        ),
    ),
    Column("education-num", 1, 16, whole=True),
    Column(
        "marital-status",
        categories=_split(
            "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, "
            "Married-spouse-absent, Married-AF-spouse"
        ),
    ),
    Column(
        "occupation",
        categories=_split(
            "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, "
            "Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, "
            "Transport-moving, Priv-house-serv, Protective-serv, Armed-Forces, ?"
        ),
    ),
    Column(
        "relationship",
        categories=_split("Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried"),
    ),
    Column(
        "race", categories=_split("White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black")
    ),
    Column("sex", categories=("Female", "Male")),
    Column("capital-gain", 0, 99999, whole=True),
    Column("capital-loss", 0, 4356, whole=True),
    Column("hours-per-week", 1, 99, whole=True),
    Column(
        "native-country",
        categories=_split(
            "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, "
            "Outlying-US(Guam-USVI-etc), India, Japan, Greece, South, China, Cuba, Iran, Honduras, "
            "Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, Portugal, Ireland, France, "
            "Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, Guatemala, "
            "Nicaragua, Scotland, Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, "
            "Holand-Netherlands, ?"
        ),
    ),
)
INCOMES = ("<=50K", ">50K")  # the classes 0 and 1
MEAN = (
    0.2956, 0.1433, 0.1201, 0.2269, 0.6054, 0.1796, 0.3757, 0.4762, 0.1149, 0.6692, 0.0108, 0.0200,
    0.4024, 0.0540,
)  # fmt: skip
STD = (
    0.1869, 0.2746, 0.0714, 0.2308, 0.1715, 0.1976, 0.2569, 0.2475, 0.3030, 0.4705, 0.0739, 0.0925,
    0.1260, 0.1865,
)  # fmt: skip
TRAIN, TEST = (24720, 7841), (12435, 3846)
FILES = {"train": "adult.data", "test": "adult.test"}
CSV = "adult.csv"


@dataset(
    table_info("adult", COLUMNS, 2, MEAN, STD),
    train=TRAIN,
    test=TEST,
    about="Adult: a census table of 48,842 people, 14 columns; label: income above 50,000 dollars",
)
def adult(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """UCI's two files, or one adult.csv."""
    folder = fetch.data_directory(data_dir) / "adult"
    if (folder / CSV).is_file() and not any((folder / name).is_file() for name in FILES.values()):
        first = sum(TRAIN)
        records = _from_csv(folder / CSV)
        records = records[:first] if split == "train" else records[first:]
        return _table(records, str(folder / CSV))
    known = next(k for k in known_files.ADULT.files if k.name == FILES[split])
    text = fetch.read(known_files.ADULT, known, data_dir).decode("ascii", errors="replace")
    return _table(list(_lines(text)), known.name)


def _lines(text: str) -> Iterator[list[str]]:
    """The records of UCI's files, without comments and empty lines."""
    for line in csv.reader(io.StringIO(text), skipinitialspace=True):
        if len(line) > 1:
            yield line


def _from_csv(path: Path) -> list[list[str]]:
    """The records of a CSV file, whose header names the columns in any order and spelling of
    dots, dashes and underscores."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as text: {error}.") from error
    header, *records = csv.reader(io.StringIO(text), skipinitialspace=True)
    columns = {_plain(name): index for index, name in enumerate(header)}
    required = [*(c.name for c in COLUMNS), "income"]
    missing = [name for name in required if _plain(name) not in columns]
    if missing:
        raise UserError(
            f"{path} lacks the columns {', '.join(missing)}; its header has {', '.join(header)}."
        )
    order = [columns[_plain(name)] for name in required]
    return [[line[index] for index in order] for line in records if len(line) >= len(header)]


def _plain(name: str) -> str:
    """The name of a column in one spelling; some files have educational-num or gender."""
    plain = "".join(c for c in name.lower() if c.isalnum())
    return {"educationalnum": "educationnum", "gender": "sex", "class": "income"}.get(plain, plain)


def _table(records: list[list[str]], source: str) -> tuple[np.ndarray, np.ndarray]:
    for row, record in enumerate(records):
        if len(record) != len(COLUMNS) + 1:
            raise UserError(
                f"{source}: record {row + 1} has {len(record)} values, not {len(COLUMNS) + 1}."
            )
    *columns, incomes = zip(*records, strict=True) if records else [()] * (len(COLUMNS) + 1)
    rows = encode(COLUMNS, columns, source)
    income = Column("income", categories=INCOMES)
    labels = encode([income], [[text.rstrip(".") for text in incomes]], source)
    return rows, labels.reshape(-1).astype(np.int64)
