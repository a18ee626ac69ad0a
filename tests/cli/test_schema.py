"""`fedsynth fetch schema`: a template that states nothing about the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import call
from own_files import HEADER, visits, write_csv


def test_a_template_is_written_and_says_what_it_looked_at(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "visits.csv", visits())
    called = call(["fetch", "schema", str(path)])
    assert called.code == 0
    assert "a template with 5 columns. Looked at: the header, and whether" in called.out
    text = (tmp_path / "visits.schema.yaml").read_text()
    assert all(f"  {name}: {{" in text for name in HEADER)
    assert not {"north", "south", "healthy", "89", "city"} & set(text.replace("[", " ").split())
    again = call(["fetch", "schema", str(path)])
    assert again.code == 2
    assert "exists and is not overwritten" in again.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name one table"),
        (["a.csv", "b.csv"], "name one table"),
        (["none.csv"], "there is no file none.csv"),
        (["notes.txt"], "notes.txt is not a table. Allowed: .csv, .parquet"),
    ],
)
def test_what_is_no_table_is_said(tmp_path: Path, monkeypatch, words, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    called = call(["fetch", "schema", *words])
    assert (called.code, called.out) == (2, "")
    assert message in called.err
    assert not list(tmp_path.iterdir())
