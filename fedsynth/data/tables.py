"""Encoding of tables as rows of numbers in [0, 1], and back.

A number is encoded by its position in the public range of its column (values outside are clipped),
a category by its index divided by the largest index. Claim: the encoding of a record depends on
that record and public facts alone; no statistic of the data is used.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.types import Column, DatasetInfo

if TYPE_CHECKING:  # imported where it is used, so that listing data sets is quick
    import torch


def table_info(
    name: str,
    columns: Sequence[Column],
    classes: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    *,
    class_names: Sequence[str] = (),
) -> DatasetInfo:
    """The public facts of a table.

    Means and deviations are those of the encoded columns; by default those of the uniform
    distribution on [0, 1]."""
    width = len(columns)
    return DatasetInfo(
        name,
        (width, 1, 1),
        classes,
        tuple(mean or [0.5] * width),
        tuple(std or [12**-0.5] * width),
        kind=DataKind.TABLE,
        columns=tuple(columns),
        class_names=tuple(class_names),
    )


def encode_column(column: Column, values: Sequence[str] | np.ndarray, source: str) -> np.ndarray:
    """Encode the values of a column as float32 in [0, 1].

    Raises:
        UserError: A value cannot be read. Names `source`, the column and the row, and not the
            value, which is private.
    """
    if column.categories:
        index = {name: i for i, name in enumerate(column.categories)}
        indices = np.array([index.get(str(value), -1) for value in values])
        numbers = indices.astype(np.float64) / max(1, len(index) - 1)
        bad = indices < 0
        expected = f"one of {len(index)} categories: {_abbreviated(column.categories)}"
    else:
        numbers = np.array([_number(value) for value in values], np.float64)
        bad = ~np.isfinite(numbers)
        expected = "a number"
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        more = f" (and {int(bad.sum()) - 1} more)" if bad.sum() > 1 else ""
        raise UserError(
            f"{source}: column {column.name!r} of record {row + 1}{more} is not {expected}."
        )
    if not column.categories:
        numbers = (numbers - column.low) / (column.high - column.low)
    return numbers.clip(0, 1).astype(np.float32)


def encode(
    columns: Sequence[Column], values: Sequence[Sequence[str] | np.ndarray], source: str
) -> np.ndarray:
    """Encode a table, given as one sequence per column, as float32 [n, columns, 1, 1]."""
    columns_encoded = [encode_column(c, v, source) for c, v in zip(columns, values, strict=True)]
    return np.stack(columns_encoded, axis=1)[:, :, None, None]


def category_indices(column: Column, values: torch.Tensor) -> torch.Tensor:
    """The index of the nearest category of each encoded value, int64."""
    last = len(column.categories) - 1
    return values.nan_to_num().mul(last).round().clamp(0, last).long()


def decode_column(column: Column, values: torch.Tensor) -> list[str]:
    """Decode values of a column to texts; values outside [0, 1] are clipped."""
    if column.categories:
        return [column.categories[index] for index in category_indices(column, values).tolist()]
    numbers = values.double().nan_to_num().clamp(0, 1) * (column.high - column.low) + column.low
    if column.whole:
        return [str(round(number)) for number in numbers.tolist()]
    return [f"{number:.6g}" for number in numbers.tolist()]


def to_csv(info: DatasetInfo, rows: torch.Tensor, labels: torch.Tensor) -> str:
    """A released table as CSV: a header, then one line per record."""
    columns = [decode_column(c, rows[:, i].flatten()) for i, c in enumerate(info.columns)]
    columns.append([info.class_text(label) for label in labels.tolist()])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(c.name for c in info.columns), "label"])
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def one_hot(info: DatasetInfo, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split rows into numbers and one-hot categories.

    Returns:
        The numbers [n, numeric columns] in [0, 1], and the categories of all categorical columns
        as one-hot groups [n, sum of categories], both in the order of the columns.
    """
    import torch
    from torch.nn import functional

    flat = rows.flatten(1)
    numeric = [i for i, c in enumerate(info.columns) if not c.categories]
    parts = [
        functional.one_hot(category_indices(c, flat[:, i]), len(c.categories)).to(flat)
        for i, c in enumerate(info.columns)
        if c.categories
    ]
    return flat[:, torch.tensor(numeric, dtype=torch.long, device=flat.device)], torch.cat(
        [flat[:, :0], *parts], dim=1
    )


def from_one_hot(
    info: DatasetInfo, numbers: torch.Tensor, categories: torch.Tensor
) -> torch.Tensor:
    """The inverse of `one_hot`, [n, columns, 1, 1]: the category with the largest value."""
    import torch

    sizes = [len(c.categories) for c in info.columns if c.categories]
    categorical = iter(
        part.argmax(1).to(numbers) / max(1, part.shape[1] - 1)
        for part in (categories.split(sizes, dim=1) if sizes else ())
    )
    numeric = iter(numbers.unbind(1))
    columns = [next(categorical) if c.categories else next(numeric) for c in info.columns]
    return torch.stack(columns, dim=1)[:, :, None, None]


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")


def _abbreviated(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
