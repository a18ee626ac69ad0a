"""Tables between what people write and what the house computes with.

A record of a table is a row of numbers in [0, 1], one a column: a number is its place in the
column's public range (what lies outside is moved to the nearer end), a category is its code over
the largest code. Nothing here looks at how the data at hand are spread.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.types import Column, DatasetInfo


def table_facts(
    name: str,
    columns: Sequence[Column],
    classes: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> DatasetInfo:
    """The facts of a table; without published means and deviations of the encoded columns, those
    of numbers that are spread evenly over [0, 1]."""
    width = len(columns)
    return DatasetInfo(
        name,
        (width, 1, 1),
        classes,
        tuple(mean or [0.5] * width),
        tuple(std or [12**-0.5] * width),
        kind=DataKind.TABLE,
        columns=tuple(columns),
    )


def encoded(column: Column, values: Sequence[str] | np.ndarray, source: str) -> np.ndarray:
    """A column's values as float32 in [0, 1]. A value that cannot be read is an error that names
    `source`, the column and the row; it does not repeat the value, which is private."""
    if column.categories:
        codes = {name: code for code, name in enumerate(column.categories)}
        found = [codes.get(str(value), -1) for value in values]
        numbers = np.array(found, np.float64) / max(1, len(codes) - 1)
        bad = np.array(found) < 0
        wanted = f"one of {len(codes)} categories: {_some(column.categories)}"
    else:
        numbers = np.array([_number(value) for value in values], np.float64)
        bad = ~np.isfinite(numbers)
        wanted = "a number"
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        more = f" (and {int(bad.sum()) - 1} more)" if bad.sum() > 1 else ""
        raise UserError(
            f"{source}: column {column.name!r} of record {row + 1}{more} is not {wanted}."
        )
    if not column.categories:
        numbers = (numbers - column.low) / (column.high - column.low)
    return numbers.clip(0, 1).astype(np.float32)


def encode(
    columns: Sequence[Column], values: Sequence[Sequence[str] | np.ndarray], source: str
) -> np.ndarray:
    """A whole table, one sequence a column, as float32 [n, columns, 1, 1]."""
    ready = [encoded(c, v, source) for c, v in zip(columns, values, strict=True)]
    return np.stack(ready, axis=1)[:, :, None, None]


def codes(column: Column, values: torch.Tensor) -> torch.Tensor:
    """The category, as int64, that every encoded value is nearest to."""
    last = len(column.categories) - 1
    return values.nan_to_num().mul(last).round().clamp(0, last).long()


def decoded(column: Column, values: torch.Tensor) -> list[str]:
    """Encoded values of a column as people write them; what lies outside is moved to an end."""
    if column.categories:
        return [column.categories[code] for code in codes(column, values).tolist()]
    numbers = values.double().nan_to_num().clamp(0, 1) * (column.high - column.low) + column.low
    if column.whole:
        return [str(round(number)) for number in numbers.tolist()]
    return [f"{number:.6g}" for number in numbers.tolist()]


def as_csv(info: DatasetInfo, rows: torch.Tensor, labels: torch.Tensor) -> str:
    """A released table as a spreadsheet reads it: a header, then a line a record."""
    written = [decoded(c, rows[:, i].flatten()) for i, c in enumerate(info.columns)]
    written.append([str(label) for label in labels.tolist()])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(c.name for c in info.columns), "label"])
    writer.writerows(zip(*written, strict=True))
    return text.getvalue()


def one_hot(info: DatasetInfo, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers [n, numeric columns] in [0, 1], and beside them the categories of all categorical
    columns as ones among zeros [n, sum of categories], columns in their order."""
    flat = rows.flatten(1)
    numeric = [i for i, c in enumerate(info.columns) if not c.categories]
    parts = [
        functional.one_hot(codes(c, flat[:, i]), len(c.categories)).to(flat)
        for i, c in enumerate(info.columns)
        if c.categories
    ]
    return flat[:, numeric], torch.cat([flat[:, :0], *parts], dim=1)


def from_one_hot(
    info: DatasetInfo, numbers: torch.Tensor, categories: torch.Tensor
) -> torch.Tensor:
    """The way back, [n, columns, 1, 1]: of every column the category with the largest value."""
    kinds = [len(c.categories) for c in info.columns if c.categories]
    found = iter(
        part.argmax(1).to(numbers) / max(1, part.shape[1] - 1)
        for part in (categories.split(kinds, dim=1) if kinds else ())
    )
    given = iter(numbers.unbind(1))
    ready = [next(found) if c.categories else next(given) for c in info.columns]
    return torch.stack(ready, dim=1)[:, :, None, None]


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
