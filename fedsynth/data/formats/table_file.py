"""A table of one's own as a data set: `data=file:visits.csv` or `.parquet`, with a schema file.

`schema_file` says what the schema states. Error texts name columns and rows, never values.
"""

from __future__ import annotations

import csv
import functools
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError, allowed, nearest
from fedsynth.core.types import Column
from fedsynth.data.formats.own_facts import NO_PARTIES, OwnFacts, checked, cut
from fedsynth.data.formats.schema_file import Schema, category_text, needed_schema
from fedsynth.data.tables import encode, table_info

SUFFIXES = (".csv", ".parquet")
LOOKED_ROWS = 100
Table = dict[str, Sequence[Any]]  # a column's values by its name


def describe(name: str, path: Path, stamp: tuple[object, ...]) -> OwnFacts:
    """The public facts, from the schema and the columns of label and party."""
    return _opened(name, path, stamp)[0]


def read(
    name: str, path: Path, split: str, stamp: tuple[object, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (float32 [n, columns, 1, 1]) and labels of a split."""
    facts, rows = _opened(name, path, stamp)
    return rows[split], facts.train if split == "train" else facts.test


@functools.lru_cache(maxsize=2)
def _opened(
    name: str, path: Path, _stamp: tuple[object, ...]
) -> tuple[OwnFacts, dict[str, np.ndarray]]:
    schema = needed_schema(path)
    return opened_table(name, schema, read_table(path), source=str(path), folder=path.parent)


def opened_table(
    name: str,
    schema: Schema,
    table: Table,
    *,
    source: str,
    folder: Path,
    test: Table | None = None,
) -> tuple[OwnFacts, dict[str, np.ndarray]]:
    """Facts and encoded rows of a table by its schema.

    Args:
        name: The name of the data set.
        schema: What its holder states.
        table: The training records, or all of them.
        source: Their place, for messages.
        folder: Where a file of test records is looked for.
        test: The test records; None: those of `schema.test`.
    """
    assert schema.label is not None
    rows, labels, owners = _encoded(schema, table, source)
    place = folder / schema.test if isinstance(schema.test, str) else folder / "test records"
    if isinstance(schema.test, str):
        test = read_table(place)
    if test is not None:
        test_rows, test_labels, _ = _encoded(schema, test, str(place))
    else:
        assert isinstance(schema.test, float)
        kept, held = cut(labels, schema.test)
        test_rows, test_labels = rows[held], labels[held]
        rows, labels = rows[kept], labels[kept]
        owners = owners[kept] if len(owners) else owners
    info = table_info(
        name,
        schema.columns,
        len(schema.label.categories),
        class_names=schema.label.categories,
    )
    parties = schema.party.categories if schema.party else ()
    seen = f"ranges and categories as {schema.path.name} states them"
    facts = OwnFacts(info, labels, test_labels, parties, owners, seen)
    return checked(facts), {"train": rows, "test": test_rows}


def _encoded(
    schema: Schema, table: Table, source: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels and party numbers of a table."""
    assert schema.label is not None
    stated = [schema.label, *([schema.party] if schema.party else []), *schema.columns]
    known = [*(column.name for column in stated), *schema.ignored]
    for name in table:
        if name not in known:
            raise UserError(
                f"{source}: {schema.path.name} says nothing of column {name!r}."
                f"{nearest(name, known)} State it, or write `ignore`."
            )
    for column in stated:
        if column.name not in table:
            raise UserError(
                f"{source} has no column {column.name!r}.{nearest(column.name, table)} "
                f"{allowed(table)}"
            )
    values = [_prepared(column, table[column.name], schema) for column in schema.columns]
    rows = encode(schema.columns, values, source)
    labels = _indices(schema.label, table, source)
    owners = _indices(schema.party, table, source) if schema.party else NO_PARTIES
    return rows, labels, owners


def _prepared(column: Column, values: Sequence[Any], schema: Schema) -> Sequence[Any]:
    """Values as `encode` takes them: categories as text, missing numbers by their stand-in."""
    if column.categories:
        return [category_text(value) for value in values]
    if column.name not in schema.missing:
        return values
    return [schema.missing[column.name] if _is_missing(value) else value for value in values]


def _is_missing(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and not value.strip())


def _indices(column: Column, table: Table, source: str) -> np.ndarray:
    """The position of each value in the categories of a column."""
    texts = [category_text(value) for value in table[column.name]]
    index = {name: i for i, name in enumerate(column.categories)}
    found = np.array([index.get(text, -1) for text in texts], np.int64)
    bad = np.flatnonzero(found < 0)
    if len(bad):
        more = f" (and {len(bad) - 1:,} more)" if len(bad) > 1 else ""
        raise UserError(
            f"{source}: column {column.name!r} of record {bad[0] + 1}{more} is not one of the "
            f"stated categories: {', '.join(column.categories[:10])}."
        )
    return found


def read_table(path: Path) -> Table:
    """All columns of a CSV or Parquet file.

    Raises:
        UserError: There is no such file, it cannot be read, or it has no records.
    """
    if not path.is_file():
        raise UserError(f"there is no file {path}.")
    columns = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    if not columns or not len(next(iter(columns.values()))):
        raise UserError(f"{path} holds no records.")
    return columns


def _csv(path: Path) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file, skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as CSV in UTF-8: {error}.") from error
    if not lines:
        return {}
    header = [name.strip() for name in lines[0]]
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise UserError(f"{path}: the header names column {twice!r} twice.")
    records = [line for line in lines[1:] if line]
    for number, record in enumerate(records):
        if len(record) != len(header):
            raise UserError(
                f"{path}: record {number + 1} has {len(record)} values, and the header has "
                f"{len(header)} names."
            )
    return dict(zip(header, zip(*records, strict=True), strict=True)) if records else {}


def arrow(purpose: str) -> Any:
    """The package pyarrow, or a UserError that says how to install it."""
    if importlib.util.find_spec("pyarrow") is None:
        raise UserError(f"{purpose} needs pyarrow, which is not installed: pip install pyarrow.")
    import pyarrow

    return pyarrow


def _parquet(path: Path) -> Table:
    pyarrow = arrow(f"{path.name}")
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path} is not a readable Parquet file ({error}).") from error
    return {name: table[name].to_pylist() for name in table.column_names}


def looked_at(path: Path) -> tuple[list[tuple[str, bool]], str]:
    """For a template: the columns and whether each seems to hold numbers, and what was read."""
    table = read_table(path)
    found = []
    for name, values in table.items():
        found.append((name, all(_numeric(value) for value in values[:LOOKED_ROWS])))
    count = min(LOOKED_ROWS, len(next(iter(table.values()))))
    return found, (
        f"Looked at: the header, and whether the first {count} records hold numbers or texts."
    )


def _numeric(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)
