"""The guide to records of one's own: its programs and commands run one after another."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml
from guides import blocks, commands, execute

GUIDE = "docs/guides/own_data.md"


@pytest.mark.timeout(300)
def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    write_table, write_saved = blocks(GUIDE, "python")
    (schema,) = blocks(GUIDE, "yaml")
    template, run, saved, flower = blocks(GUIDE, "bash")
    execute(f"{write_table}\n{write_saved}", tmp_path)
    assert "Looked at: the header" in commands(template, tmp_path)
    place = tmp_path / "visits.schema.yaml"
    assert list(yaml.safe_load(place.read_text())["columns"]) == list(
        yaml.safe_load(schema)["columns"]
    )
    place.write_text(schema)
    printed = commands(run, tmp_path)
    assert "party 0 city" in printed
    assert "healthy" in printed
    page = (tmp_path / "hospitals" / "report.html").read_text()
    assert "Parties and their records" in page
    assert "2 hill" in page
    (rows,) = (tmp_path / "hospitals" / "releases").glob("ldpdc*/stage-1.csv")
    with rows.open(newline="") as file:
        released = list(csv.DictReader(file))
    assert {row["label"] for row in released} == {"healthy", "ill"}
    assert all(0 <= int(row["age"]) <= 120 for row in released)
    assert "together" in commands(saved, tmp_path)
    assert "party 3" in commands(flower, tmp_path)
