"""Data that the templates of the report show: tables, pictures and sections, free of markup."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from fedsynth.report.report_data import ReportData
from fedsynth.report.summary import SummaryRow
from fedsynth.storage.files import write_file
from fedsynth.storage.run_directory import RunDirectory


@dataclass(frozen=True)
class ReportContext:
    """Input of every section: the run, its numbers, and the texts that go with them."""

    run: RunDirectory
    data: ReportData
    metrics: pd.DataFrame
    rows: Sequence[SummaryRow]
    folder: Path | None = None  # of the page and its figures; None: the run directory
    figure_kinds: tuple[str, ...] = ("png", "svg")  # files of each figure
    links: bool = True  # to files of the run; on paper there are none

    def write(self, name: str, data: bytes) -> Path:
        """Write a file that belongs to the page, beside it."""
        if self.folder is None:
            return self.run.write_bytes(name, data)
        return write_file(self.folder / name, data)

    def link(self, name: str) -> str:
        """The place of a file of the run as the page links to it."""
        if self.folder is None:
            return name
        return Path(os.path.relpath(self.run.path / name, self.folder)).as_posix()


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
TEXT_WIDTH = 12.0  # em of a column whose texts wrap
PADDING = 1.2  # em beside the content of a cell
LETTER = 0.6  # em of an average letter or digit, of bold ones too
BUCKETS = (20, 30, 40, 50, 60, 70, 76, 999)  # em; below one of these widths, rows become blocks


@dataclass(frozen=True)
class Column:
    """A table column. Labels stay on one line, texts wrap, numbers are aligned to the right."""

    heading: str
    kind: ColumnKind = "number"
    title: str = ""  # explanation of the heading
    group: str = ""  # heading over this and the neighbouring columns of the group

    @property
    def name(self) -> str:
        """The heading with that of its group, for places without a row of groups."""
        return f"{self.group} {self.heading}".strip()


@dataclass(frozen=True)
class Cell:
    """A cell with more than its text: a deviation below it, emphasis, a place in the order."""

    text: str
    deviation: str = ""  # "± 0.010"
    best: bool = False
    order: float | None = None  # sorts the cell, where its text has units
    link: str = ""  # relative to the page

    def __str__(self) -> str:
        return f"{self.text} {self.deviation}".rstrip()


@dataclass(frozen=True)
class Row:
    """A table row, the first cell of which is its heading."""

    cells: Sequence[object]
    reference: bool = False  # of a method that is not private


@dataclass(frozen=True)
class ColumnGroup:
    """Neighbouring columns under one heading; without one, the single column itself."""

    heading: str
    columns: tuple[tuple[int, Column], ...]  # with their positions


@dataclass(frozen=True)
class Table:
    """A table with one cell per column in every row."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]

    def __post_init__(self) -> None:
        if any(len(row.cells) != len(self.columns) for row in self.rows):
            raise ValueError(f"table {self.caption!r}: a row does not fit the columns")

    @property
    def groups(self) -> list[ColumnGroup]:
        """The columns by group, in order; a column without a group is alone."""
        groups: list[ColumnGroup] = []
        for place in enumerate(self.columns):
            heading = place[1].group
            if heading and groups and groups[-1].heading == heading:
                groups[-1] = ColumnGroup(heading, (*groups[-1].columns, place))
            else:
                groups.append(ColumnGroup(heading, (place,)))
        return groups

    @property
    def narrowest(self) -> int:
        """The width in em, rounded up to one of a few, that all columns need side by side."""
        needed = sum(self._width(position) for position in range(len(self.columns)))
        return next((width for width in BUCKETS if width >= needed), BUCKETS[-1])

    def _width(self, position: int) -> float:
        column = self.columns[position]
        words = [len(word) for word in column.heading.split()]
        if column.kind == "text":
            longest = max((len(str(row.cells[position])) for row in self.rows), default=0)
            return PADDING + min(TEXT_WIDTH, LETTER * max([longest, *words]))
        parts = [
            part
            for cell in (row.cells[position] for row in self.rows)
            for part in ((cell.text, cell.deviation) if isinstance(cell, Cell) else (str(cell),))
        ]
        return PADDING + LETTER * max(max(map(len, parts), default=0), *words, 0)


@dataclass(frozen=True)
class Picture:
    """A picture that is embedded into the page, with a variant for dark screens if there is one."""

    alt: str
    data: bytes
    dark: bytes | None = None
    media_type: str = "image/svg+xml"
    narrow: bytes | None = None  # the variant for phones, with fewer panels side by side
    narrow_dark: bytes | None = None
    file: str = ""  # where the picture lies as a file, without its ending

    @property
    def uri(self) -> str:
        """The picture as a data URI."""
        return self._data_uri(self.data)

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Media queries with the variant for each, the most special first."""
        dark, phone = "(prefers-color-scheme: dark)", "(max-width: 900px)"
        variants = (
            (f"screen and {dark} and {phone}", self.narrow_dark),
            (f"screen and {phone}", self.narrow),
            (f"screen and {dark}", self.dark),
        )
        return [(media, self._data_uri(data)) for media, data in variants if data is not None]

    def _data_uri(self, data: bytes) -> str:
        return f"data:{self.media_type};base64,{base64.b64encode(data).decode()}"
