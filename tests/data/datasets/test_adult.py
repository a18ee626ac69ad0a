"""Adult's reader on a small file in UCI's form, and on CSV files as others keep it."""

from __future__ import annotations

import hashlib

import pytest

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data import tables
from fedsynth.data.datasets import adult
from fedsynth.data.fetch import known_files as files

PEOPLE = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, "
    "Male, 2174, 0, 40, United-States, <=50K",
    "52, ?, 209642, HS-grad, 9, Married-civ-spouse, ?, Husband, White, Male, 0, 0, 45, ?, >50K",
    "17, Private, 12285, 11th, 7, Never-married, Sales, Own-child, Black, Female, 0, 0, 1, "
    "Outlying-US(Guam-USVI-etc), <=50K",
)
DATA = "\n".join(PEOPLE) + "\n\n"
TEST = "|1x3 Cross validator\n" + "\n".join(p + "." for p in PEOPLE[1:]) + "\n"
HEADER = [c.name for c in adult.COLUMNS]


@pytest.fixture
def tiny_adult(monkeypatch, tmp_path):
    """A data directory whose published Adult has three people and two."""
    folder = tmp_path / "adult"
    folder.mkdir()
    known = []
    for name, text in (("adult.data", DATA), ("adult.test", TEST)):
        (folder / name).write_text(text)
        known.append(files.VerifiedFile(name, hashlib.sha256(text.encode()).hexdigest()))
    small = files.DatasetFiles("adult", tuple(known), made="made_table")
    monkeypatch.setattr(files, "ADULT", small)
    monkeypatch.setitem(files.FILE_SETS, "adult", small)
    monkeypatch.setattr(adult, "TRAIN", (2, 1))
    old = datasets._registry["adult"]
    entry = datasets.DataSet(old.info, (2, 1), (1, 1), old.about, False, old.reader)
    monkeypatch.setitem(datasets._registry, "adult", entry)
    return folder


def written(rows, record):
    """One record as people write it."""
    return [
        tables.decode_column(c, rows[:, i].flatten())[record] for i, c in enumerate(adult.COLUMNS)
    ]


def test_uci_files_are_read_as_they_are(tiny_adult):
    rows, labels = datasets.load("adult", "train", tiny_adult.parent)
    assert labels.tolist() == [0, 1, 0]
    for record, person in enumerate(PEOPLE):
        assert written(rows, record) == person.split(", ")[:-1]
    rows, labels = datasets.load("adult", "test", tiny_adult.parent)
    assert labels.tolist() == [1, 0]
    assert written(rows, 0) == PEOPLE[1].split(", ")[:-1]


@pytest.mark.parametrize(
    "rename",
    [lambda name: name, lambda name: name.replace("-", "."), lambda name: name.replace("-", "_")],
)
def test_one_csv_holds_both_in_any_order_of_columns(tiny_adult, rename):
    for path in tiny_adult.iterdir():
        path.unlink()
    header = [rename(name) for name in [*HEADER, "income"]]
    people = [p.split(", ") for p in (*PEOPLE, *PEOPLE[1:])]
    lines = [",".join(reversed(line)) for line in [header, *people]]
    (tiny_adult / "adult.csv").write_text("\n".join(lines))
    rows, labels = datasets.load("adult", "train", tiny_adult.parent)
    assert labels.tolist() == [0, 1, 0]
    assert written(rows, 2) == PEOPLE[2].split(", ")[:-1]
    assert datasets.load("adult", "test", tiny_adult.parent)[1].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Sales", "Stealing"), "column 'occupation' of record 3 is not one of 15 categories"),
        ((", 45,", ", many,"), "column 'hours-per-week' of record 2 is not a number"),
        ((", >50K", ""), "record 2 has 14 values, not 15"),
        ((">50K", "50K"), "column 'income' of record 2 is not one of 2 categories: <=50K, >50K"),
    ],
)
def test_what_is_wrong_is_named_by_its_place_and_not_repeated(tiny_adult, change, message):
    (tiny_adult / "adult.data").unlink()
    (tiny_adult / "adult.test").unlink()
    text = DATA.replace(*change)
    with pytest.raises(UserError, match=message) as told:
        adult._table(list(adult._lines(text)), "adult.data")
    assert not any(word in str(told.value) for word in ("Stealing", "many"))
    (tiny_adult / "adult.csv").write_text("age,sex\n1,2\n")
    with pytest.raises(UserError, match=r"adult.csv lacks the columns workclass, fnlwgt"):
        datasets.load("adult", "train", tiny_adult.parent)


def test_a_changed_file_is_refused(tiny_adult):
    path = tiny_adult / "adult.data"
    path.write_text(path.read_text().replace("39", "38"))
    with pytest.raises(UserError, match=r"adult.data is not the file it should be"):
        datasets.load("adult", "train", tiny_adult.parent)


def test_the_published_counts():
    assert sum(datasets.find("adult").train) == 32561
    assert sum(datasets.find("adult").test) == 16281
