"""The report as Markdown: the same sections as the page, for wikis, issues and repositories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedsynth.core.text import markdown_table
from fedsynth.report.elements import Cell, Picture, Section, Table

TITLES = {  # of parts of a section
    "surprises": "What is surprising",
    "privacy": "What it costs in privacy",
    "uncertain": "What is uncertain",
    "setting": "Setting",
    "references": "Not private (ε = ∞)",
    "assumptions": "Treated as public",
    "audits_scope": "Audits: how much of a claim attacks have proven",
    "certificates": "Certificates of the releases",
    "departures": "Departures of this run from the published settings",
    "differences": "What differs between the runs",
    "notes": "Notes",
    "environment": "Environment",
}
PARAGRAPHS = ("finding",)  # lists of sentences that belong together


def markdown_page(title: str, facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """The whole report as Markdown.

    Args:
        title: The title of the page.
        facts: Short facts below the title, by name.
        sections: The sections in order. Contact sheets of images are left out: they lie beside
            the releases.
    """
    lines = [f"# {_plain(title)}", _bullets([f"{name}: {text}" for name, text in facts.items()])]
    for section in sections:
        parts = [
            part
            for key, value in section.content.items()
            for part in _titled(key, _joined(value) if key in PARAGRAPHS else _parts(value))
        ]
        if parts:
            lines += [f"## {_plain(section.heading)}", *parts]
    return "\n\n".join(lines) + "\n"


def table_markdown(table: Table) -> str:
    """A table as Markdown, with its caption below."""
    headings = [_plain(column.name) for column in table.columns]
    rows = [[_cell(cell) for cell in row.cells] for row in table.rows]
    return f"{markdown_table(headings, rows)}\n\n{_plain(table.caption)}"


def _titled(key: str, parts: list[str]) -> list[str]:
    return [f"### {TITLES[key]}", *parts] if parts and key in TITLES else parts


def _joined(value: object) -> list[str]:
    """Sentences as one paragraph."""
    return [_plain(" ".join(map(str, value)))] if isinstance(value, Sequence) else []


def _parts(value: object) -> list[str]:
    """The blocks of a part of a section; none for what has no form in Markdown."""
    if isinstance(value, Table):
        return [table_markdown(value)]
    if isinstance(value, Picture):
        return [f"![{_plain(value.alt)}]({value.file}.svg)"] if value.file else []
    if isinstance(value, Mapping):
        return [_bullets([f"{name}: {text}" for name, text in value.items()])] if value else []
    if isinstance(value, Sequence):
        return _listed(value)
    if (table := getattr(value, "table", None)) is not None:
        return [f"**{_plain(getattr(value, 'summary', ''))}**", *_parts(table)]
    return []


def _listed(values: Sequence[object]) -> list[str]:
    """The blocks of a text, of several texts, or of other parts."""
    if isinstance(values, str):
        return [_plain(values)] if values else []
    texts = [value for value in values if isinstance(value, str)]
    if texts and len(texts) == len(values):
        return [_bullets(texts)]
    return [part for value in values for part in _parts(value)]


def _bullets(items: Sequence[str]) -> str:
    return "\n".join(f"* {_plain(item)}" for item in items)


def _cell(cell: object) -> str:
    text = _plain(str(cell))
    if isinstance(cell, Cell) and cell.link:
        return f"[{text}]({cell.link})"
    return f"**{text}**" if isinstance(cell, Cell) and cell.best else text


def _plain(text: str) -> str:
    """A text on one line that opens no HTML element."""
    return " ".join(str(text).replace("&", "&amp;").replace("<", "&lt;").split())
