"""The guide to exports: its commands and its program run one after another."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from guides import blocks, execute

from fedsynth.api.export.forms import FORMS

GUIDE = "docs/guides/export.md"


@pytest.mark.timeout(300)
def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    (commands,) = blocks(GUIDE, "bash")
    (example,) = blocks(GUIDE, "python")
    program = "from fedsynth.cli.main import app\n"
    for line in commands.splitlines():
        name, *words = shlex.split(line)
        assert name == "fedsynth"
        program += f"app.main({words!r}, prog_name='fedsynth', standalone_mode=False)\n"
    printed = execute(["-c", program + example + "print(len(frame), len(dataset))"], tmp_path)
    assert "exported as hf: the data files hold" in printed
    assert list((tmp_path / "images").glob("images/*/*.png"))
    assert (tmp_path / "rows" / "data.csv").is_file()


def test_every_form_has_its_row() -> None:
    text = (Path(__file__).parents[2] / GUIDE).read_text()
    rows = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert set(FORMS) <= set(rows)
