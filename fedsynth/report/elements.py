"""Data that the templates of the report show: tables, pictures and sections, free of markup."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from fedsynth.report.report_data import ReportData
from fedsynth.report.summary import SummaryRow
from fedsynth.storage.run_directory import RunDirectory


@dataclass(frozen=True)
class ReportContext:
    """Input of every section: the run, its numbers, and the texts that go with them."""

    run: RunDirectory
    data: ReportData
    metrics: pd.DataFrame
    rows: Sequence[SummaryRow]


@dataclass(frozen=True)
class Section:
    """A section of the page; `content` feeds the template `sections/NAME.html.j2`."""

    name: str  # also its anchor
    heading: str
    content: Mapping[str, object]
    link: str = ""  # in the navigation; empty: the heading

    @property
    def template(self) -> str:
        """Path of the template of the content."""
        return f"sections/{self.name}.html.j2"


ColumnKind = Literal["number", "label", "text"]


@dataclass(frozen=True)
class Column:
    """A table column. Labels stay on one line, texts wrap, numbers are aligned to the right."""

    heading: str
    kind: ColumnKind = "number"
    title: str = ""  # explanation of the heading


@dataclass(frozen=True)
class Row:
    """A table row, the first cell of which is its heading."""

    cells: Sequence[object]
    reference: bool = False  # of a method that is not private


@dataclass(frozen=True)
class Table:
    """A table with one cell per column in every row."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    sortable: bool = True  # False: cells have units that differ, so numbers alone do not order them

    def __post_init__(self) -> None:
        if any(len(row.cells) != len(self.columns) for row in self.rows):
            raise ValueError(f"table {self.caption!r}: a row does not fit the columns")


@dataclass(frozen=True)
class Picture:
    """A picture that is embedded into the page, with a variant for dark screens if there is one."""

    alt: str
    data: bytes
    dark: bytes | None = None
    media_type: str = "image/svg+xml"

    @property
    def uri(self) -> str:
        """The picture as a data URI."""
        return self._data_uri(self.data)

    @property
    def dark_uri(self) -> str | None:
        """The variant for dark screens as a data URI."""
        return None if self.dark is None else self._data_uri(self.dark)

    def _data_uri(self, data: bytes) -> str:
        return f"data:{self.media_type};base64,{base64.b64encode(data).decode()}"
