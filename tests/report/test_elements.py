"""Tables fit their columns, pictures are embedded."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from report_pages import context

from fedsynth.report.elements import BUCKETS, Cell, Column, Picture, Row, Section, Table
from fedsynth.storage.run_directory import RunDirectory


def test_a_row_that_does_not_fit_its_table_is_an_error() -> None:
    columns = (Column("a"), Column("b"))
    Table("caption", columns, [Row(("1", "2"))])
    with pytest.raises(ValueError, match="'caption'"):
        Table("caption", columns, [Row(("1", "2")), Row(("1",))])


def test_pictures_carry_their_data() -> None:
    picture = Picture("alt", b"light", b"dark")
    assert picture.uri == "data:image/svg+xml;base64," + base64.b64encode(b"light").decode()
    ((media, dark),) = picture.sources
    assert media == "screen and (prefers-color-scheme: dark)"
    assert dark.endswith(base64.b64encode(b"dark").decode())
    assert Picture("alt", b"light", media_type="image/png").sources == []
    assert Picture("alt", b"light", media_type="image/png").uri.startswith("data:image/png;")


def test_phones_get_the_narrow_variant_of_a_picture() -> None:
    picture = Picture("alt", b"light", b"dark", narrow=b"thin", narrow_dark=b"thin dark")
    first, second, third = (base64.b64decode(uri.partition(",")[2]) for _, uri in picture.sources)
    assert (first, second, third) == (b"thin dark", b"thin", b"dark")
    phone, dark = "(max-width: 900px)", "prefers-color-scheme: dark"
    found = [(phone in media, dark in media) for media, _ in picture.sources]
    assert found == [(True, True), (True, False), (False, True)]
    assert all(media.startswith("screen and") for media, _ in picture.sources)  # not in print


def test_columns_of_a_group_stand_together() -> None:
    columns = [Column("Method", "label"), Column("1", group="After"), Column("2", group="After")]
    groups = Table("caption", [*columns, Column("Time")], []).groups
    assert [(g.heading, [place for place, _ in g.columns]) for g in groups] == [
        ("", [0]), ("After", [1, 2]), ("", [3]),
    ]  # fmt: skip
    assert [column.name for column in columns] == ["Method", "After 1", "After 2"]


def test_a_table_states_the_width_that_its_cells_need() -> None:
    short = Table("caption", [Column("a"), Column("b")], [Row(("1", "2"))])
    assert short.narrowest == BUCKETS[0]
    digits = Cell("0.123", "± 0.001")
    many = Table("caption", [Column("c")] * 10, [Row([digits] * 10)])
    more = Table("caption", [Column("c")] * 12, [Row([digits] * 12)])
    assert BUCKETS[0] < many.narrowest < more.narrowest
    texts = Table("caption", [Column("c", "text")] * 2, [Row(["word " * 100] * 2)])
    assert texts.narrowest == 30  # they wrap
    label = Table("caption", [Column("c", "label")] * 2, [Row(["word " * 100] * 2)])
    assert label.narrowest == BUCKETS[-1]  # one never fits


def test_a_cell_reads_as_text() -> None:
    assert str(Cell("0.900", "± 0.010", best=True)) == "0.900 ± 0.010"
    assert str(Cell("3 MB", order=3e6)) == "3 MB"


def test_files_of_a_page_lie_beside_it(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    inside = context(run)
    assert inside.write("figures/a.svg", b"a") == run.path / "figures/a.svg"
    assert inside.link("releases/x.json") == "releases/x.json"
    outside = replace(inside, folder=tmp_path / "pages" / "one")
    assert outside.write("figures/a.svg", b"a") == tmp_path / "pages/one/figures/a.svg"
    assert outside.link("releases/x.json") == "../../run/releases/x.json"


def test_a_section_names_its_template() -> None:
    assert Section("costs", "Costs", {}).template == "sections/costs.html.j2"
