"""Tables fit their columns, pictures are embedded."""

import base64

import pytest

from fedsynth.report.elements import Column, Picture, Row, Section, Table


def test_a_row_that_does_not_fit_its_table_is_an_error() -> None:
    columns = (Column("a"), Column("b"))
    Table("caption", columns, [Row(("1", "2"))])
    with pytest.raises(ValueError, match="'caption'"):
        Table("caption", columns, [Row(("1", "2")), Row(("1",))])


def test_pictures_carry_their_data() -> None:
    picture = Picture("alt", b"light", b"dark")
    assert picture.uri == "data:image/svg+xml;base64," + base64.b64encode(b"light").decode()
    assert picture.dark_uri is not None
    assert picture.dark_uri.endswith(base64.b64encode(b"dark").decode())
    assert Picture("alt", b"light", media_type="image/png").dark_uri is None
    assert Picture("alt", b"light", media_type="image/png").uri.startswith("data:image/png;")


def test_a_section_names_its_template() -> None:
    assert Section("costs", "Costs", {}).template == "sections/costs.html.j2"
