"""Small pieces of HTML. Everything that comes in as text is escaped here and nowhere else."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Column:
    """A table column: its heading, whether it holds numbers, and what the heading means."""

    heading: str
    number: bool = True
    title: str = ""


def text(value: object) -> str:
    """Any value as text that cannot be taken for markup, in content or in an attribute."""
    return escape(str(value), quote=True)


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[tuple[str, Sequence[object]]],
) -> str:
    """A table from rows of (class of the row, cells); the first cell is the row's heading."""
    head = "".join(
        f'<th scope="col"{_number(column)}'
        + (f' title="{text(column.title)}"' if column.title else "")
        + f">{text(column.heading)}</th>"
        for column in columns
    )
    body = "".join(_row(kind, cells, columns) for kind, cells in rows)
    return scrolling(
        f"<table><caption>{text(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def scrolling(wide: str, kind: str = "") -> str:
    """Something wide that scrolls sideways by itself, by touch, mouse or keyboard."""
    return f'<div class="scroll {kind}" tabindex="0">{wide}</div>'


def _row(kind: str, cells: Sequence[object], columns: Sequence[Column]) -> str:
    first, *others = zip(cells, columns, strict=True)
    return (
        (f'<tr class="{text(kind)}">' if kind else "<tr>")
        + f'<th scope="row"{_number(first[1])}>{text(first[0])}</th>'
        + "".join(f"<td{_number(column)}>{text(cell)}</td>" for cell, column in others)
        + "</tr>"
    )


def _number(column: Column) -> str:
    return ' class="number"' if column.number else ""


def data_uri(data: bytes, kind: str) -> str:
    """Bytes inside the page itself: nothing is fetched."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def picture(alt: str, light: bytes, dark: bytes | None = None, kind: str = "image/svg+xml") -> str:
    """An embedded picture, with another one for dark screens where there is one."""
    image = f'<img alt="{text(alt)}" src="{data_uri(light, kind)}">'
    if dark is None:
        return image
    source = data_uri(dark, kind)
    return (
        '<picture><source media="screen and (prefers-color-scheme: dark)" '
        f'srcset="{source}">{image}</picture>'
    )


def section(anchor: str, heading: str, *content: str) -> str:
    """A section of the page; none when it has no content."""
    inside = "".join(content)
    if not inside:
        return ""
    return f'<section id="{anchor}"><h2>{text(heading)}</h2>{inside}</section>'


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of text."""
    return f'<p class="{kind}">{text(words)}</p>' if kind else f"<p>{text(words)}</p>"


def bullets(items: Iterable[str]) -> str:
    """A list of texts; nothing when there are none."""
    lines = "".join(f"<li>{text(item)}</li>" for item in items)
    return f"<ul>{lines}</ul>" if lines else ""


def definitions(pairs: Iterable[tuple[str, object]]) -> str:
    """Names with their values."""
    lines = "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for k, v in pairs)
    return f"<dl>{lines}</dl>" if lines else ""


def folded(summary: str, *content: str, opened: bool = False) -> str:
    """Content behind a line that opens it; printed in full."""
    return (
        f"<details{' open' if opened else ''}><summary>{text(summary)}</summary>"
        f"{''.join(content)}</details>"
    )
