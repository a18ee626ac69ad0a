"""Tables of one's own: CSV and Parquet by their schema, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from own_files import HEADER, SCHEMA, visits, write_csv, write_visits

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.data.formats.table_file import looked_at
from fedsynth.data.tables import to_csv


def test_a_table_is_encoded_by_what_its_schema_states(tmp_path: Path) -> None:
    name = f"file:{write_visits(tmp_path)}"
    known = datasets.find(name)
    assert [c.name for c in known.info.columns] == ["age", "ward"]
    assert known.info.class_names == ("healthy", "ill")
    assert known.parties == ("city", "lake", "hill")
    assert (known.train, known.test) == ((24, 24), (6, 6))
    assert known.party_of is not None
    rows, labels = datasets.load(name, "train")
    text = to_csv(known.info, rows, labels).splitlines()
    assert text[0] == "age,ward,label"
    assert set(text[1:]) <= {f"{row[0]},{row[1]},{row[2]}" for row in visits()}
    owners = known.party_of()
    assert len(owners) == 48
    held = [(row[0], row[3]) for row in visits()]
    for line, owner in zip(text[1:], owners, strict=True):
        assert (int(line.split(",")[0]), known.parties[owner]) in held


def test_parquet_gives_the_same_as_csv(tmp_path: Path) -> None:
    csv = f"file:{write_visits(tmp_path)}"
    frame = pd.DataFrame(visits(), columns=HEADER)
    frame["age"] = frame["age"].astype(float)
    (tmp_path / "other").mkdir()
    frame.to_parquet(tmp_path / "other" / "visits.parquet")
    (tmp_path / "other" / "visits.schema.yaml").write_text(SCHEMA)
    parquet = f"file:{tmp_path / 'other' / 'visits.parquet'}"
    for split in ("train", "test"):
        for one, other in zip(
            datasets.load(csv, split), datasets.load(parquet, split), strict=True
        ):
            assert (one == other).all()


def test_a_file_of_test_records_and_a_missing_number(tmp_path: Path) -> None:
    path = write_visits(tmp_path, SCHEMA + "test: later.csv\n")
    write_csv(
        tmp_path / "later.csv", [["", "south", "ill", "lake", 1], [20, "north", "ill", "hill", 2]]
    )
    rows, labels = datasets.load(f"file:{path}", "test")
    assert labels.tolist() == [1, 1]
    assert np.allclose(rows[:, 0, 0, 0].numpy(), [50 / 120, 20 / 120])
    assert datasets.find(f"file:{path}").train == (30, 30)


def test_ranges_are_those_of_the_schema_whatever_the_records_hold(tmp_path: Path) -> None:
    path = write_visits(tmp_path)
    before = datasets.find(f"file:{path}").info
    rows = visits()
    rows[0][0] = 10**6
    write_csv(path, rows)
    assert datasets.find(f"file:{path}").info == before
    assert float(datasets.load(f"file:{path}", "train")[0].max()) <= 1


def changed(row: int, column: int, value: object) -> list[list[object]]:
    rows = visits()
    rows[row][column] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (changed(3, 0, "old"), HEADER, r"column 'age' of record 4 is not a number"),
        (changed(3, 1, "west"), HEADER, r"column 'ward' of record 4 is not one of 2 categories"),
        (changed(3, 2, "dead"), HEADER, r"column 'outcome' of record 4 is not one of the stated"),
        (changed(3, 3, "sea"), HEADER, r"column 'hospital' of record 4 is not one of the stated"),
        ([[1, "north"]], HEADER, r"record 1 has 2 values, and the header has 5 names"),
        ([], HEADER, "holds no records"),
        (visits(), [*HEADER[:4], "age"], "names column 'age' twice"),
        (visits(), [*HEADER[:4], "number"], "says nothing of column 'number'"),
        (visits(), ["agee", *HEADER[1:]], "says nothing of column 'agee'. Did you mean 'age'"),
        ([r for r in visits() if r[2] == "ill"], HEADER, "records of one class only"),
        ([r for r in visits() if r[3] != "hill"], HEADER, "party 'hill' has no training record"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_without_its_values(
    tmp_path: Path, rows: list[list[object]], header: list[str], message: str
) -> None:
    path = write_visits(tmp_path)
    write_csv(path, rows, header)
    with pytest.raises(UserError, match=message) as told:
        datasets.load(f"file:{path}", "train")
    assert not {"old", "west", "dead", "sea"} & set(str(told.value).split())


def test_no_schema_and_no_parquet(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "bare.csv", visits())
    with pytest.raises(UserError, match=r"fedsynth fetch schema .*bare.csv` writes a template"):
        datasets.find(f"file:{path}")
    bad = tmp_path / "visits.parquet"
    bad.write_text("text")
    (tmp_path / "visits.schema.yaml").write_text(SCHEMA)
    with pytest.raises(UserError, match="not a readable Parquet file"):
        datasets.find(f"file:{bad}")


def test_a_template_looks_at_names_and_types_alone(tmp_path: Path) -> None:
    columns, looked = looked_at(write_visits(tmp_path))
    assert columns == [
        ("age", True), ("ward", False), ("outcome", False), ("hospital", False), ("id", True),
    ]  # fmt: skip
    assert "the header, and whether the first 60 records hold numbers or texts" in looked
