"""Tables of the report for LaTeX with booktabs, and a document that shows them with the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from fedsynth.report.elements import Cell, Column, Picture, Section, Table

# the sections with tables of numbers
TABLES = ("results", "classes", "classifiers", "quality", "worth", "costs", "parties", "runs")
SPECIAL = {
    "\\": r"\textbackslash{}",
    **{letter: rf"\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "∞": r"$\infty$",
    "±": r"$\pm$",
    "–": "--",
    "−": "$-$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "\N{NO-BREAK SPACE}": "~",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}
Kind = TypeVar("Kind")
PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage[T1]{fontenc}
\usepackage[a4paper,margin=25mm]{geometry}
\usepackage{booktabs,graphicx,lmodern}
\begin{document}"""


def escaped(text: str) -> str:
    r"""A text as LaTeX shows it unchanged.

    >>> escaped("dp_sgd at ε = 1")
    'dp\\_sgd at $\\varepsilon$ = 1'
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def latex_tables(sections: Sequence[Section]) -> dict[str, str]:
    """The tables of numbers by the name of their file, without ending."""
    found = {}
    for section in sections:
        if section.name in TABLES:
            tables = list(_found(section.content, Table))
            for number, table in enumerate(tables, start=1):
                name = section.name if len(tables) == 1 else f"{section.name}{number}"
                found[name] = latex_table(table, f"tab:{name}")
    return found


def latex_table(table: Table, label: str) -> str:
    """A floating table with booktabs; one that is wider than the text is made smaller."""
    grouped = any(column.group for column in table.columns)
    lines = [
        "% needs \\usepackage{booktabs,graphicx}",
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{escaped(table.caption)}}}",
        f"\\label{{{label}}}",
        "\\vspace{1ex}",
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{{''.join(map(_alignment, table.columns))}}}",
        "\\toprule",
        *(_group_lines(table) if grouped else []),
        " & ".join(escaped(column.heading) for column in table.columns) + r" \\",
        "\\midrule",
        *(" & ".join(map(_cell, row.cells)) + r" \\" for row in table.rows),
        "\\bottomrule",
        "\\end{tabular}}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex_page(title: str, facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """A document with the finding, all tables and all figures, which `pdflatex` translates."""
    lines = [PREAMBLE, f"\\section*{{{escaped(title)}}}"]
    lines.append(escaped("; ".join(f"{name}: {text}" for name, text in facts.items())) + ".\n")
    for section in sections:
        if isinstance(sentences := section.content.get("finding"), Sequence):
            lines.append(escaped(" ".join(sentences)))
    lines += [f"\\input{{tables/{name}}}" for name in latex_tables(sections)]
    for section in sections:
        for picture in _found(section.content, Picture):
            lines += _figure(picture) if picture.file else []
    return "\n".join([*lines, "\\end{document}"]) + "\n"


def _figure(picture: Picture) -> list[str]:
    return [
        "\\begin{figure}",
        "\\centering",
        f"\\includegraphics[width=\\linewidth]{{{picture.file}.pdf}}",
        f"\\caption{{{escaped(picture.alt.partition('. ')[0])}.}}",
        f"\\label{{fig:{picture.file.rpartition('/')[2]}}}",
        "\\end{figure}",
    ]


def _alignment(column: Column) -> str:
    return {"number": "r", "label": "l", "text": "p{0.3\\linewidth}"}[column.kind]


def _group_lines(table: Table) -> list[str]:
    """The headings over groups of columns, with a rule below each."""
    cells, rules, first = [], [], 1
    for group in table.groups:
        number = len(group.columns)
        heading = escaped(group.heading)
        cells.append(f"\\multicolumn{{{number}}}{{c}}{{{heading}}}" if heading else "")
        if heading:
            rules.append(f"\\cmidrule(lr){{{first}-{first + number - 1}}}")
        first += number
    return [" & ".join(cells) + r" \\", "".join(rules)]


def _cell(cell: object) -> str:
    if not isinstance(cell, Cell):
        return escaped(str(cell))
    text = f"\\textbf{{{escaped(cell.text)}}}" if cell.best else escaped(cell.text)
    return f"{text} {{\\scriptsize {escaped(cell.deviation)}}}" if cell.deviation else text


def _found(value: object, kind: type[Kind]) -> Iterator[Kind]:
    """The objects of a kind in the content of a section, in order."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _found(item, kind)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _found(item, kind)
