"""Recipes: per printed table, the runs whose results stand beside its numbers.

A recipe is a YAML file in `recipes/`. It names a published table and holds runs; each run has the
words of its command at the published setting, a reduced form of it with the reason, and the printed
rows (cells) that it yields. A run may also evaluate what an earlier run released, by another
classifier. Cells that no run yields are listed with their reason.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from fedsynth.core.errors import UserError, unknown
from fedsynth.report.paper_comparison.numbers import Published, paper_numbers

FOLDER = Path(__file__).with_name("recipes")
CELL_KEYS = (
    "data",
    "method",
    "printed_method",
    "setting",
    "epsilon",
    "spc",
    "classifier",
    "protocol",
    "metric",
)


class Status(StrEnum):
    """How a printed cell stands."""

    PUBLISHED = "published"  # produced at the published setting
    REDUCED = "reduced"  # produced by a reduced form
    NOT_RUN = "not_run"
    IMPOSSIBLE = "impossible"  # the data or a part of the setting is not to be had


class Preset(StrEnum):
    """The form in which a run is made."""

    PUBLISHED = "published"
    REDUCED = "reduced"


@dataclass(frozen=True)
class Cells:
    """A selection of printed rows: for each key, the values that a row may have."""

    values: Mapping[str, tuple[Any, ...]]

    @staticmethod
    def parse(given: Any, place: str, keys: Sequence[str] = CELL_KEYS) -> Cells:
        """Read `{key: value or list of values}`.

        Raises:
            UserError: A key is no column of the printed numbers.
        """
        if not isinstance(given, Mapping):
            raise UserError(f"{place}: cells={given!r} must hold columns and values.")
        for key in given:
            if key not in keys:
                raise unknown("column of cells", key, keys)
        return Cells({k: tuple(v) if isinstance(v, list) else (v,) for k, v in given.items()})

    def select(self, rows: Iterable[Published]) -> list[Published]:
        """The rows that have one of the values in every column named."""
        return [
            row
            for row in rows
            if all(
                any(_equal(getattr(row, key), v) for v in among)
                for key, among in self.values.items()
            )
        ]


def _equal(found: object, wanted: object) -> bool:
    if isinstance(found, float) or isinstance(wanted, float):
        return found is not None and wanted is not None and float(found) == float(wanted)  # type: ignore[arg-type]
    return found == wanted


@dataclass(frozen=True)
class RecipeRun:
    """One run of a recipe, or one evaluation of what another run released.

    Attributes:
        name: The name, unique within the recipe.
        cells: The printed rows that it yields.
        words: Words of `fedsynth run` at the published setting; empty for an evaluation.
        reduced: Further words of the reduced form, of `fedsynth run` or `fedsynth evaluate`.
        why: What the reduced form changes, and why.
        of: `RECIPE/RUN` whose release is evaluated; empty for a run.
        evaluate: Words of `fedsynth evaluate`.
        differs: What differs from the published setting in every form, so that no cell of this
            run counts as published.
        notes: Remarks on every form that leave the setting the published one.
        printed_epsilon: The epsilon of the printed rows, by the paper's count, if the budget of the
            run follows another one; None: both are the same.
        printed_classifier: The classifier of the printed rows, if that of the run, which stands in
            for it, has another name; `differs` says how they differ.
        plan_only: Only the epsilon of the planned run is counted; nothing is released.
    """

    name: str
    cells: Cells
    words: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    why: str = ""
    of: str = ""
    evaluate: tuple[str, ...] = ()
    differs: str = ""
    notes: str = ""
    printed_epsilon: float | None = None
    printed_classifier: str = ""
    plan_only: bool = False

    def words_of(self, preset: Preset) -> tuple[str, ...]:
        """The words of the run or evaluation in one form; reduced words replace earlier ones."""
        words = self.words or self.evaluate
        if preset == Preset.PUBLISHED:
            return words
        changed = {word.partition("=")[0] for word in self.reduced}
        kept = (word for word in words if word.partition("=")[0] not in changed)
        return (*kept, *self.reduced)


@dataclass(frozen=True)
class LeftOut:
    """Cells that no run yields, and the reason."""

    cells: Cells
    status: Status
    why: str


@dataclass(frozen=True)
class Recipe:
    """All runs for one printed table."""

    name: str  # PAPER.TABLE, as the file is called
    source: str
    table: str
    title: str
    runs: tuple[RecipeRun, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def rows(self) -> list[Published]:
        """The printed rows of the table."""
        return [
            row for row in paper_numbers() if (row.source, row.table) == (self.source, self.table)
        ]

    def run(self, name: str) -> RecipeRun:
        """The run of this name.

        Raises:
            UserError: There is none.
        """
        for each in self.runs:
            if each.name == name:
                return each
        raise unknown(f"run of {self.name}", name, [each.name for each in self.runs])

    def base(self, run: RecipeRun) -> tuple[Recipe, RecipeRun]:
        """The run whose release an evaluation reads, and its recipe."""
        name, _, other = run.of.rpartition("/")
        source = recipe(name) if name else self
        return source, source.run(other)

    def has_reduced_form(self, run: RecipeRun) -> bool:
        """True if the run, or the run that it evaluates, has a reduced form."""
        return bool(run.reduced or (run.of and self.base(run)[1].reduced))


_RUN_KEYS = (
    *("cells", "words", "reduced", "why", "of", "evaluate", "differs", "notes"),
    *("printed_epsilon", "printed_classifier", "plan_only"),
)
_KEYS = ("source", "table", "title", "runs", "left_out")


def recipe_names() -> list[str]:
    """The names of all recipes, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@functools.cache
def recipe(name: str) -> Recipe:
    """The recipe of this name.

    Raises:
        UserError: There is none, or its file is wrong.
    """
    if name not in recipe_names():
        raise unknown("recipe", name, recipe_names())
    values = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    _check_keys(values, _KEYS, name)
    runs = tuple(_run(run, given, name) for run, given in (values.get("runs") or {}).items())
    left_out = []
    for given in values.get("left_out") or ():
        _check_keys(given, ("cells", "status", "why"), name)
        cells = Cells.parse(given["cells"], name)
        left_out.append(LeftOut(cells, Status(given["status"]), str(given["why"])))
    return Recipe(
        name,
        str(values["source"]),
        str(values["table"]),
        str(values["title"]),
        runs,
        tuple(left_out),
    )


def all_recipes() -> list[Recipe]:
    """All recipes, sorted by name."""
    return [recipe(name) for name in recipe_names()]


def _run(name: str, given: Mapping[str, Any], place: str) -> RecipeRun:
    _check_keys(given, _RUN_KEYS, f"{place}, run {name}")
    return RecipeRun(
        name,
        Cells.parse(given["cells"], f"{place}, run {name}"),
        _words(given.get("words")),
        _words(given.get("reduced")),
        str(given.get("why", "")),
        str(given.get("of", "")),
        _words(given.get("evaluate")),
        str(given.get("differs", "")),
        str(given.get("notes", "")),
        None if given.get("printed_epsilon") is None else float(given["printed_epsilon"]),
        str(given.get("printed_classifier", "")),
        bool(given.get("plan_only", False)),
    )


def _words(given: Any) -> tuple[str, ...]:
    """Words from a text that is cut at spaces, or from a list."""
    if given is None:
        return ()
    return tuple(given.split()) if isinstance(given, str) else tuple(map(str, given))


def _check_keys(given: Any, keys: Sequence[str], place: str) -> None:
    if not isinstance(given, Mapping):
        raise UserError(f"{place}: {given!r} must hold keys and values.")
    for key in given:
        if key not in keys:
            raise UserError(f"{place}: {unknown('key', key, keys)}")
