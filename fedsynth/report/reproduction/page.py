"""Pages of reproduced tables: one per recipe, and one of all, with `coverage.csv`."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsynth.core.text import epsilon_text, markdown_table
from fedsynth.report.reproduction.claims import Standing, standings
from fedsynth.report.reproduction.coverage import (
    AVERAGE,
    Coverage,
    coverage,
    read_results,
    recipe_coverage,
    table_folder,
)
from fedsynth.report.reproduction.recipes import CELL_KEYS, Recipe, Status, all_recipes
from fedsynth.storage.files import make_directories, write_file

PAGE, COVERAGE = "README.md", "coverage.csv"
MISSES = "misses.md"  # written by hand: experiments on numbers that miss
COLUMNS = (
    "paper",
    "table",
    *CELL_KEYS,
    "printed",
    "printed_deviation",
    "ours",
    "spread",
    "draws",
    "within",
    "status",
    "reason",
    "caveat",
    "run",
    "command",
    "commit",
)
CLAIM_HEADINGS = ("paper", "claim", "verdict", "our numbers", "printed")
HEADINGS = ("data", "method", "ε", "measured by", "printed", "ours", "difference", "status")


def table_page(recipe: Recipe, cells: Sequence[Coverage]) -> str:
    """The page of one table."""
    counts = _counts(cells)
    lines = [
        f"# {recipe.rows[0].place}: {recipe.title}",
        "",
        f"`fedsynth reproduce {recipe.name}` makes this page. {_sentence(counts, len(cells))}",
        "",
    ]
    done = [cell for cell in cells if cell.result is not None]
    if done:
        lines += [markdown_table(HEADINGS, map(_line, done)), ""]
    waiting = dict.fromkeys(cell.waits_for for cell in cells if cell.waits_for)
    reasons = Counter(
        (str(cell.status), cell.reason) for cell in cells if cell.reason and not cell.waits_for
    )
    if reasons or waiting:
        lines += ["What differs, and what is missing:", ""]
        for (status, reason), number in reasons.most_common():
            lines.append(f"* {number} {'cell' if number == 1 else 'cells'} ({status}): {reason}")
        if waiting:
            number = sum(bool(cell.waits_for) for cell in cells)
            lines.append(
                f"* {number} {'cell' if number == 1 else 'cells'} (not_run): the runs "
                f"{', '.join(waiting)} have not been made"
            )
        lines.append("")
    commands = dict.fromkeys(
        (c.result.command, c.result.commit, c.result.seconds)
        for c in done
        if c.result and c.row.classifier != AVERAGE
    )
    if commands:
        lines += ["Commands (2 CPU cores):", ""]
        lines += [f"* `{c}` at {commit}, {seconds:,.0f} s" for c, commit, seconds in commands]
        lines.append("")
    return "\n".join(lines)


def _line(cell: Coverage) -> tuple[str, ...]:
    row, result = cell.row, cell.result
    assert result is not None
    measured = " ".join(
        part
        for part in (
            row.classifier,
            f"({row.protocol})" if row.protocol != "none" else "",
            row.metric.replace("_", " ") if row.metric != "accuracy" else "",
            f"{row.spc:,} per class" if row.spc else "",
        )
        if part
    )
    near = "" if cell.within else " (farther than the printed spread and two points)"
    setting = f", {row.setting}" if row.setting else ""
    return (
        row.data,
        f"{row.printed_method}{setting}",
        epsilon_text(row.epsilon) if row.epsilon is not None else "",
        measured,
        _number(row.value, row.deviation),
        _number(result.ours, result.spread),
        f"{result.ours - row.value:+.3f}{near}",
        str(cell.status),
    )


def _number(value: float, deviation: float | None) -> str:
    return f"{value:.3f}" + (f" ± {deviation:.3f}" if deviation is not None else "")


def _counts(cells: Sequence[Coverage]) -> Counter[Status]:
    return Counter(cell.status for cell in cells)


def _sentence(counts: Counter[Status], total: int) -> str:
    return (
        f"Of {total} printed cells {counts[Status.PUBLISHED]} were produced at the published "
        f"setting, {counts[Status.REDUCED]} in a reduced form, {counts[Status.NOT_RUN]} were not "
        f"run, and {counts[Status.IMPOSSIBLE]} cannot be."
    )


def write_table(out: Path, recipe: Recipe) -> Path:
    """Write the page of one table from the results in its folder."""
    folder = table_folder(out, recipe)
    make_directories(folder)
    cells = recipe_coverage(recipe, read_results(folder))
    return write_file(folder / PAGE, table_page(recipe, cells).encode())


def write_coverage(out: Path) -> Path:
    """Write `coverage.csv`, a row per printed cell, and the page that counts them."""
    cells = coverage(out)
    make_directories(out)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_row(cell) for cell in cells)
    write_file(out / COVERAGE, buffer.getvalue().encode())
    page = _coverage_page(cells, misses=(out / MISSES).is_file())
    return write_file(out / PAGE, page.encode())


def _row(cell: Coverage) -> list[object]:
    row, result = cell.row, cell.result
    values: list[object] = [
        row.source,
        row.table,
        row.data,
        row.method,
        row.printed_method,
        row.setting,
        row.epsilon,
        row.spc,
        row.classifier,
        row.protocol,
        row.metric,
        row.value,
        row.deviation,
        *((result.ours, result.spread, result.draws) if result else [None] * 3),
        cell.within,
        cell.status,
        cell.reason,
        row.flag,
        *((result.run, result.command, result.commit) if result else [None] * 3),
    ]
    return ["" if value is None else value for value in values]


def _coverage_page(cells: Sequence[Coverage], *, misses: bool) -> str:
    names = {(each.source, each.table): each for each in all_recipes()}
    tables = list(dict.fromkeys((cell.row.source, cell.row.table) for cell in cells))
    rows = []
    for place in tables:
        here = [cell for cell in cells if (cell.row.source, cell.row.table) == place]
        counts = _counts(here)
        near = [cell.within for cell in here if cell.status == Status.PUBLISHED]
        recipe = names.get(place)
        paper, _, table = recipe.name.partition(".") if recipe else ("", "", "")
        linked = f"[{place[1]}]({paper}/{table}/{PAGE})" if recipe else place[1]
        rows.append(
            (
                place[0],
                linked,
                recipe.name if recipe else "",
                str(len(here)),
                *(str(counts[status]) for status in Status),
                f"{sum(map(bool, near))} of {len(near)}" if near else "",
            )
        )
    headings = ("paper", "table", "recipe", "cells", *map(str, Status), "near, of published")
    text = [
        "# Printed numbers of five papers, and ours",
        "",
        "`fedsynth reproduce --coverage` makes this page and [coverage.csv](coverage.csv), which "
        "has a row per printed cell. " + _sentence(_counts(cells), len(cells)),
        "",
        "A number is near if it lies within the printed spread or two points."
        + (f" [Why numbers differ]({MISSES}): what was tried on those that are not." * misses),
        "",
        markdown_table(headings, rows),
        "",
        "## Claims",
        "",
        "A claim that one method is better than another is checked on each pair of cells that "
        "agree in data set, epsilon, images per class, classifier and metric; *printed* counts "
        "the pairs in which the printed numbers bear it out.",
        "",
        markdown_table(CLAIM_HEADINGS, [_claim_line(each, names) for each in standings(cells)]),
        "",
    ]
    return "\n".join(text)


def _claim_line(standing: Standing, recipes: Mapping[tuple[str, str], Recipe]) -> tuple[str, ...]:
    claim = standing.claim
    if claim.found is not None:
        return claim.paper, claim.text, f"[{standing.verdict}]({claim.link})", claim.evidence, ""
    ours = "no comparison has both numbers"
    if standing.compared:
        ours = (
            f"holds in {standing.holds} of {standing.compared} comparisons, "
            f"{standing.published} of them at the published setting"
        )
    places = []
    for table in claim.tables:
        known = recipes.get((claim.paper, table))
        place = "/".join(known.name.split(".", 1)) if known else ""
        places.append(f"[{table}]({place}/{PAGE})" if known else table)
    return (
        claim.paper,
        f"{claim.text} (table {', '.join(places)})",
        str(standing.verdict),
        ours,
        f"{standing.printed} of {standing.printable}",
    )
