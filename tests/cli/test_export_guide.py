"""The guide to exports: its commands and its program run one after another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from guides import blocks, commands, execute

from fedsynth.api.export.forms import FORMS

GUIDE = "docs/guides/export.md"
LENGTHS = "\nprint(len(frame), len(dataset))"


@pytest.mark.timeout(300)
def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    (block,) = blocks(GUIDE, "bash")
    (example,) = blocks(GUIDE, "python")
    assert "exported as hf: the data files hold" in commands(block, tmp_path)
    assert re.search(r"^[1-9]\d* [1-9]\d*$", execute(f"{example}{LENGTHS}", tmp_path), re.MULTILINE)
    assert list((tmp_path / "images").glob("images/*/*.png"))
    assert (tmp_path / "rows" / "data.csv").is_file()


def test_every_form_has_its_row() -> None:
    text = (Path(__file__).parents[2] / GUIDE).read_text()
    rows = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert set(FORMS) <= set(rows)
