"""The report as Markdown: tables, lists and figures of every section, and no HTML."""

from __future__ import annotations

from pathlib import Path

from report_pages import context, finished

from fedsynth.report.elements import Cell, Column, Picture, Row, Section, Table
from fedsynth.report.markdown import markdown_page, table_markdown
from fedsynth.report.page import sections_of

TABLE = Table(
    "A <b>caption</b>",
    [Column("Method", "label"), Column("1", group="After stage")],
    [Row(("a|b", Cell("0.900", "± 0.010", best=True))), Row((Cell("run", link="r/x.html"), "–"))],
)


def test_a_table_has_its_cells_and_its_caption() -> None:
    assert table_markdown(TABLE).splitlines() == [
        "| Method | After stage 1 |",
        "| --- | --- |",
        "| a\\|b | **0.900 ± 0.010** |",
        "| [run](r/x.html) | – |",
        "",
        "A &lt;b>caption&lt;/b>",
    ]


def test_every_kind_of_content_has_its_form() -> None:
    content = {
        "finding": ["One.", "Two."],
        "uncertain": ["first", "second"],
        "terms": {"Unit": "record"},
        "picture": Picture("Two words", b"", file="figures/x"),
        "unsaved": Picture("Nothing", b""),
        "tables": [TABLE, TABLE],
        "number": 5,
        "empty": (),
        "none": None,
    }
    text = markdown_page("T", {"Data": "mnist"}, [Section("s", "S", content)])
    assert text.startswith("# T\n\n* Data: mnist\n\n## S\n\nOne. Two.\n\n### What is uncertain\n\n")
    assert "* first\n* second" in text
    assert "* Unit: record" in text
    assert "![Two words](figures/x.svg)" in text
    assert "Nothing" not in text
    assert text.count("A &lt;b>caption") == 2


def test_the_markdown_of_a_run_has_its_numbers(tmp_path: Path) -> None:
    inside = context(finished(tmp_path / "run"))
    text = markdown_page("Split-MNIST", {}, sections_of(inside))
    assert "| psg | 10 | **0.900 ± 0.010** |" in text
    assert "**psg, budget ε = 10: 1 party, at most ε = 9.876 spent**" in text
    assert "### What it costs in privacy" in text
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert {"## Finding", "## Results", "## Costs", "## Reproduce"} <= set(headings)
    for line in text.splitlines():
        if line.startswith("!["):
            name = line.rpartition("(")[2].rstrip(")")
            assert (inside.run.path / name).read_bytes().startswith(b"<?xml")
