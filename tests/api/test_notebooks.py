"""The notebooks: every cell runs, and displays what is stored but for numbers and rows."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from unittest import mock

import pytest
from guides import ROOT
from notebooks import code_cells, outputs, source

FOLDER = ROOT / "docs/notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_BYTES = 40_000


def words(output: dict) -> str:
    """An output without its numbers, hashes and spaces; of a data frame the headings."""
    lines = output.get("text") or output["data"]["text/plain"]
    if "dataframe" in "".join(output.get("data", {}).get("text/html", [])):
        lines = lines[:1]
    text = re.sub(r"\b[0-9a-f]{8,}\b", "#", "".join(lines))
    return " ".join(re.sub(r"[-+]?\d[\d.,e+-]*", "#", text).split())


@pytest.fixture(scope="module")
def displayed(tmp_path_factory) -> dict[str, list]:
    """The outputs of all notebooks, each run in a folder of its own."""
    found = {}
    with mock.patch.dict(os.environ, COLUMNS="100"):
        for path in NOTEBOOKS:
            with contextlib.chdir(tmp_path_factory.mktemp(path.stem)):
                found[path.name] = list(outputs([source(cell) for cell in code_cells(path)]))
    return found


def test_there_are_two():
    assert len(NOTEBOOKS) == 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_display_what_is_stored(path: Path, displayed: dict[str, list]):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell, found in zip(cells, displayed[path.name], strict=True):
        assert list(map(words, cell["outputs"])) == list(map(words, found)), cell["source"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_light_and_names_no_path_of_a_machine(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < MOST_BYTES
    assert not re.search(r"/(tmp|home|root|work|Users)/", text)
    assert "image/png" not in text
