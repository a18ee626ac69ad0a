"""LaTeX tables: booktabs, groups of columns, nothing that LaTeX would misread."""

from __future__ import annotations

import re
from pathlib import Path

from report_pages import context, finished

from fedsynth.report.elements import Cell, Column, Row, Section, Table
from fedsynth.report.latex import escaped, latex_page, latex_table, latex_tables
from fedsynth.report.page import sections_of

TABLE = Table(
    "100% of dp_sgd at ε",
    [
        Column("Method", "label"),
        Column("1", group="After stage"),
        Column("2", group="After stage"),
        Column("Why", "text"),
    ],
    [Row(("dp_sgd", Cell("0.900", "± 0.010", best=True), "∞", "a & b"))],
)


def test_special_letters_are_escaped() -> None:
    assert escaped(r"a_b & 5% {x} \ $ # ^ ~") == (
        r"a\_b \& 5\% \{x\} \textbackslash{} \$ \# \textasciicircum{} \textasciitilde{}"
    )
    assert escaped("ε ± ∞ – ≥ <") == (r"$\varepsilon$ $\pm$ $\infty$ -- $\geq$ \textless{}")


def test_a_table_is_one_of_booktabs() -> None:
    text = latex_table(TABLE, "tab:x")
    assert r"\begin{tabular}{lrrp{0.3\linewidth}}" in text
    assert r" & \multicolumn{2}{c}{After stage} &  \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"\caption{100\% of dp\_sgd at $\varepsilon$}" in text
    assert r"dp\_sgd & \textbf{0.900} {\scriptsize $\pm$ 0.010} & $\infty$ & a \& b \\" in text
    order = [text.index(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")]
    assert order == sorted(order)
    assert text.count("{") == text.count("}")


def test_tables_of_a_section_have_names_of_their_own() -> None:
    sections = [
        Section("results", "R", {"table": TABLE}),
        Section("classifiers", "C", {"tables": [TABLE, TABLE]}),
        Section("methods", "M", {"table": TABLE}),
    ]
    assert list(latex_tables(sections)) == ["results", "classifiers1", "classifiers2"]


def test_the_document_names_files_that_are_there(tmp_path: Path) -> None:
    inside = context(finished(tmp_path / "run"))
    sections = sections_of(inside)
    text = latex_page("A & B", {"Data": "mnist"}, sections)
    assert r"\section*{A \& B}" in text
    assert set(re.findall(r"\\input{tables/(\w+)}", text)) == set(latex_tables(sections))
    figures = re.findall(r"\\includegraphics\[width=\\linewidth\]{(.+?)\.pdf}", text)
    assert figures == [
        "figures/accuracy_over_budgets", "figures/accuracy_over_stages", "figures/accuracy_matrices"
    ]  # fmt: skip
    assert text.rstrip().endswith(r"\end{document}")
    assert text.isascii()
