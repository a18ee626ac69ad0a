"""Numbers and tables as text for readers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

MISSING = "–"  # in place of a number that does not exist


def epsilon_text(epsilon: float | None) -> str:
    """An epsilon with four digits, the sign for infinity, a dash for none."""
    if epsilon is None or math.isnan(epsilon):
        return MISSING
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4g}"


def bytes_text(count: float) -> str:
    """A number of bytes with three digits and a decimal unit."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a vertical bar in a cell is escaped."""
    lines = [headings, ("---",) * len(headings), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)
