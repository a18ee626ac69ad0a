"""Which printed cells have been produced, how, and how near they came.

Results of a recipe lie in `cells.csv` of its folder: one row per printed cell that a run yielded.
`coverage` joins them with every printed number, so that a cell without a result has its reason.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedsynth.report.paper_comparison.matching import Measured
from fedsynth.report.paper_comparison.numbers import Published, paper_numbers
from fedsynth.report.reproduction.recipes import (
    Preset,
    Recipe,
    RecipeRun,
    Status,
    all_recipes,
)
from fedsynth.storage.files import write_file

CELLS = "cells.csv"
TWO_POINTS = 0.02  # of accuracy: as near as the papers' own repetitions come
AVERAGE = "average"  # over the classifiers of a table, of the same releases
NO_RECIPE = "no recipe for this table"
NO_AVERAGE = "an average needs the numbers of all classifiers"
NO_RUN = "no run of the recipe is for this row"


@dataclass(frozen=True)
class CellKey:
    """What names a printed cell."""

    source: str
    table: str
    data: str
    printed_method: str
    setting: str
    epsilon: str
    spc: str
    classifier: str
    protocol: str
    metric: str

    @staticmethod
    def of(row: Published) -> CellKey:
        """The key of a printed row."""
        return CellKey(
            row.source,
            row.table,
            row.data,
            row.printed_method,
            row.setting,
            "" if row.epsilon is None else f"{row.epsilon:g}",
            "" if row.spc is None else str(row.spc),
            row.classifier,
            row.protocol,
            row.metric,
        )


@dataclass(frozen=True)
class Result:
    """Our number for one printed cell, with what produced it."""

    key: CellKey
    ours: float
    spread: float | None  # over draws
    draws: int
    run: str
    preset: str
    reason: str  # what differs from the published setting; empty: nothing
    notes: str
    command: str
    commit: str
    seconds: float


@dataclass(frozen=True)
class Coverage:
    """One printed cell and how it stands."""

    row: Published
    status: Status
    reason: str
    result: Result | None = None
    waits_for: str = ""  # the run that would yield it

    @property
    def within(self) -> bool | None:
        """True if our number is as near as the printed spread, or two points; None without one."""
        if self.result is None:
            return None
        scale = 1.0 if abs(self.row.value) <= 1.5 else abs(self.row.value)
        allowed = max(TWO_POINTS * scale, self.row.deviation or 0.0)
        return abs(self.result.ours - self.row.value) <= allowed + 1e-9


def match(row: Published, measured: Iterable[Measured]) -> Measured | None:
    """The measured number of a printed cell: same metric, protocol, classifier and epsilon.

    The recipe says that the run is of the cell's method and data."""
    for number in measured:
        if (
            number.metric == row.metric
            and number.protocol == row.protocol
            and number.classifier == row.classifier
            and (row.epsilon is None or _near(number.epsilon, row.epsilon))
        ):
            return number
    return None


def _near(one: float, other: float) -> bool:
    return one == other or math.isclose(one, other, rel_tol=1e-6)


def results_of(
    recipe: Recipe,
    run: RecipeRun,
    preset: Preset,
    measured: Sequence[Measured],
    facts: Mapping[str, Any],
) -> list[Result]:
    """The results of one run, a row per printed cell that it yields.

    Args:
        recipe: The recipe.
        run: The run.
        preset: The form in which it was made.
        measured: Its numbers, under the names of the printed ones.
        facts: `draws`, `command`, `commit` and `seconds` of the run.
    """
    found = []
    for row in run.cells.select(recipe.rows):
        if row.classifier == AVERAGE:
            continue  # of the cells of all runs
        number = match(row, measured)
        if number is None:
            continue
        reasons = [run.why] if preset == Preset.REDUCED and run.why else []
        reasons += [run.differs] if run.differs else []
        if row.spc and number.spc and round(number.spc) != row.spc:
            reasons.append(f"{number.spc:g} images per class in place of {row.spc}")
        found.append(
            Result(
                CellKey.of(row),
                number.value,
                number.deviation,
                int(facts["draws"]),
                run.name,
                str(preset),
                "; ".join(reasons),
                run.notes,
                str(facts["command"]),
                str(facts["commit"]),
                float(facts["seconds"]),
            )
        )
    return found


def write_results(folder: Path, results: Iterable[Result]) -> None:
    """Add results to a recipe's `cells.csv`; a published form is not replaced by a reduced one."""
    kept = {result.key: result for result in read_results(folder)}
    for result in results:
        before = kept.get(result.key)
        if before is None or not (
            before.preset == Preset.PUBLISHED and result.preset == Preset.REDUCED
        ):
            kept[result.key] = result
    buffer = io.StringIO(newline="")
    names = [*(f.name for f in fields(CellKey)), *(f.name for f in fields(Result)[1:])]
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    for result in kept.values():
        line = {**asdict(result.key), **asdict(result)}
        del line["key"]
        writer.writerow({k: "" if v is None else v for k, v in line.items()})
    write_file(folder / CELLS, buffer.getvalue().encode())


def read_results(folder: Path) -> list[Result]:
    """The results in a recipe's folder; none if it has no file."""
    path = folder / CELLS
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [f.name for f in fields(CellKey)]
    return [
        Result(
            CellKey(**{name: row[name] for name in names}),
            float(row["ours"]),
            float(row["spread"]) if row["spread"] else None,
            int(row["draws"]),
            row["run"],
            row["preset"],
            row["reason"],
            row["notes"],
            row["command"],
            row["commit"],
            float(row["seconds"]),
        )
        for row in rows
    ]


def table_folder(out: Path, recipe: Recipe) -> Path:
    """The folder of a recipe's results: OUT/PAPER/TABLE."""
    paper, _, table = recipe.name.partition(".")
    return out / paper / table


def recipe_coverage(recipe: Recipe, results: Iterable[Result]) -> list[Coverage]:
    """How each printed cell of one table stands."""
    found = {
        result.key: _of_today(recipe, result)
        for result in results
        if result.key.classifier != AVERAGE
    }
    made = {result.run for result in found.values()}
    found.update(averages(recipe, found))
    standing = []
    for row in recipe.rows:
        result = found.get(CellKey.of(row))
        if result is not None:
            exact = result.preset == Preset.PUBLISHED and not result.reason
            status = Status.PUBLISHED if exact else Status.REDUCED
            reason = "; ".join(filter(None, (result.reason, result.notes)))
            standing.append(Coverage(row, status, reason, result))
            continue
        standing.append(_missing(recipe, row, made))
    return standing


def _of_today(recipe: Recipe, result: Result) -> Result:
    """The result; a reduced one, with the reason, if its run is no longer one of the recipe."""
    if any(run.name == result.run for run in recipe.runs):
        return result
    reason = f"run {result.run} follows a reading of the paper that its recipe no longer has"
    return replace(
        result,
        preset=str(Preset.REDUCED),
        reason="; ".join(filter(None, (result.reason, reason))),
    )


def averages(recipe: Recipe, found: Mapping[CellKey, Result]) -> dict[CellKey, Result]:
    """The averages over the classifiers of a table, where every classifier has a result."""
    rows = [CellKey.of(row) for row in recipe.rows]
    means = {}
    for key in rows:
        if key.classifier != AVERAGE:
            continue
        others = [
            row
            for row in rows
            if row.classifier != AVERAGE and replace(row, classifier=AVERAGE) == key
        ]
        results = [found[row] for row in others if row in found]
        if not results or len(results) < len(others):
            continue
        exact = all(result.preset == Preset.PUBLISHED for result in results)
        means[key] = Result(
            key,
            sum(result.ours for result in results) / len(results),
            None,
            min(result.draws for result in results),
            " ".join(dict.fromkeys(result.run for result in results)),
            str(Preset.PUBLISHED if exact else Preset.REDUCED),
            _joined(result.reason for result in results),
            _joined(result.notes for result in results),
            f"mean of the {len(results)} classifiers above",
            " ".join(dict.fromkeys(result.commit for result in results)),
            0.0,
        )
    return means


def _joined(texts: Iterable[str]) -> str:
    """The parts of several lists of remarks, each once."""
    parts = (part for text in texts for part in text.split("; ") if part)
    return "; ".join(dict.fromkeys(parts))


def _missing(recipe: Recipe, row: Published, made: Collection[str]) -> Coverage:
    if row.classifier == AVERAGE:
        return Coverage(row, Status.NOT_RUN, NO_AVERAGE)
    for run in recipe.runs:
        if run.cells.select([row]):
            if run.name in made:
                reason = f"not among the numbers of its run ({row.classifier} is not installed?)"
                return Coverage(row, Status.NOT_RUN, reason)
            reason = f"run {run.name} of {recipe.name} has not been made"
            return Coverage(row, Status.NOT_RUN, reason, waits_for=run.name)
    for left in recipe.left_out:
        if left.cells.select([row]):
            return Coverage(row, left.status, left.why)
    return Coverage(row, Status.NOT_RUN, NO_RUN)


def coverage(out: Path) -> list[Coverage]:
    """How every printed cell of all tables stands, by the results below `out`."""
    by_table = {(each.source, each.table): each for each in all_recipes()}
    standing: list[Coverage] = []
    seen: set[tuple[str, str]] = set()
    for row in paper_numbers():
        place = row.source, row.table
        if place in seen:
            continue
        if place in by_table:
            seen.add(place)
            known = by_table[place]
            standing += recipe_coverage(known, read_results(table_folder(out, known)))
        else:
            standing.append(Coverage(row, Status.NOT_RUN, NO_RECIPE))
    return standing
