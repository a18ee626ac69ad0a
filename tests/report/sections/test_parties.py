"""The section of the parties: a figure and a table with the names of parties and classes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from report_pages import context, report_data

from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.report.party_split import MAX_SHOWN
from fedsynth.report.sections.parties import party_section
from fedsynth.storage.run_directory import RunDirectory

INFO = DatasetInfo("x", (1, 4, 4), 2, (0.5,), (0.5,), class_names=("ill", "well"))


def section(folder: Path, parties: tuple[PartyInfo, ...], info: DatasetInfo | None) -> Any:
    data = dataclasses.replace(report_data(), parties=parties, info=info)
    return party_section(context(RunDirectory.create(folder), data))


def test_counts_stand_beside_the_names(tmp_path: Path) -> None:
    parties = (PartyInfo(0, 5, {0: 2, 1: 3}, "city"), PartyInfo(1, 1400, {1: 1400}, "lake"))
    made = section(tmp_path / "run", parties, INFO)
    table = made.content["table"]
    assert [column.heading for column in table.columns] == ["Party", "Records", "ill", "well"]
    assert [row.cells for row in table.rows] == [
        ("0 city", "5", "2", "3"), ("1 lake", "1,400", "0", "1,400"),
    ]  # fmt: skip
    assert "party 0 city" in made.content["picture"].alt
    assert (tmp_path / "run" / "figures" / "parties.png").read_bytes().startswith(b"\x89PNG")


def test_many_parties_are_told_to_be_more(tmp_path: Path) -> None:
    parties = tuple(PartyInfo(i, 1, {0: 1}) for i in range(MAX_SHOWN + 3))
    table = section(tmp_path / "run", parties, dataclasses.replace(INFO)).content["table"]
    assert len(table.rows) == MAX_SHOWN
    assert f"the first {MAX_SHOWN} of {MAX_SHOWN + 3} parties" in table.caption


@pytest.mark.parametrize("info", [None, INFO])
def test_one_party_has_no_such_section(tmp_path: Path, info: DatasetInfo | None) -> None:
    assert section(tmp_path / "run", (PartyInfo(0, 5, {0: 5}),), info) is None
