"""Rendering escapes every text, and a template that asks for missing content is an error."""

import tomllib
from pathlib import Path

import jinja2
import pytest
from report_pages import Page
from tiny_runs import ROOT

from fedsynth.report import rendering
from fedsynth.report.elements import Column, Row, Section, Table
from fedsynth.report.rendering import render_section

HOSTILE = '"><script>alert(1)</script>&amp;'


def test_texts_are_escaped_in_content_and_in_attributes() -> None:
    table = Table(HOSTILE, [Column(HOSTILE, title=HOSTILE)], [Row((HOSTILE,))])
    page = Page(render_section(Section("costs", HOSTILE, {"table": table})))
    assert page.all("script") == []
    assert page.text.count(HOSTILE) == 4
    assert page.all("th")[0]["title"] == HOSTILE


def test_missing_content_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render_section(Section("costs", "Costs", {}))


def test_every_template_ships_with_the_package() -> None:
    folder = Path(rendering.__file__).parent
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["packages"] == ["fedsynth"]  # with all files below
    assert "exclude" not in build["targets"]["wheel"]
    assert folder.is_relative_to(ROOT / "fedsynth")
    assert (folder / "templates" / "report.css").is_file()
