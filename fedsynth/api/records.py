"""A caller's own records as arrays, of images or of a table with a stated schema.

Claim: nothing is taken from the records but their number, their shape and, where the caller does
not state them, the set of labels: ranges and categories are the caller's. Error texts name places
and never values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.data import Dataset, TensorDataset

from fedsynth.core.errors import UserError, nearest
from fedsynth.core.types import Column, DatasetInfo
from fedsynth.data.registry import DataSet
from fedsynth.data.tables import encode, table_info

CHANNELS = (1, 3)
Schema = Mapping[str, Any] | Sequence[Column]


@dataclass(frozen=True)
class OwnRecords:
    """Records with labels 0, 1, 2, ...: of images uint8, of a table float32 in [0, 1].

    Attributes:
        records: [n, channels, height, width]; of a table [n, columns, 1, 1].
        labels: int64 [n], indices into `classes`.
        classes: The caller's labels, in order.
        columns: The columns of a table; empty for images.
    """

    records: np.ndarray
    labels: np.ndarray
    classes: np.ndarray
    columns: tuple[Column, ...] = ()

    def data_set(self, name: str) -> DataSet:
        """The records as a data set of this public name, without test records."""
        channels, height, width = self.records.shape[1:]
        count = len(self.classes)
        if self.columns:
            info = table_info(name, self.columns, count)
        else:
            half = (0.5,) * channels  # a constant: no statistic of private images
            info = DatasetInfo(name, (channels, height, width), count, half, half)
        counts = tuple(np.bincount(self.labels, minlength=count).tolist())
        none = self.records[:0], self.labels[:0]
        return DataSet(
            info,
            counts,
            (),
            about="records of the caller; class counts taken as public",
            made=False,
            reader=lambda split, _: (self.records, self.labels) if split == "train" else none,
        )


def own_records(
    x: Any, y: Any = None, schema: Schema | None = None, classes: Sequence[Any] | None = None
) -> OwnRecords:
    """Read the arguments of `Synthesizer.fit`.

    Args:
        x: Images [n, h, w] or [n, c, h, w], uint8 or floats in [0, 1], as an array or tensor; a
            table as a data frame or array [n, columns]; or a torch data set of (image, label).
        y: The labels; of a data frame also the name of their column; None for a torch data set.
        schema: The columns of a table.
        classes: The labels that there can be; None: those that occur, which are then public.

    Raises:
        UserError: The arguments do not fit each other.
    """
    if y is None and isinstance(x, Dataset):
        x, y = _of_torch(x)
    if y is None:
        raise UserError("y is missing: fit(X, y), or fit(DATASET) of pairs (image, label).")
    if isinstance(x, pd.DataFrame) and isinstance(y, str):
        if y not in x:
            raise UserError(f"y={y!r} is not a column of X.{nearest(y, x.columns)}")
        x, y = x.drop(columns=y), x[y]
    columns: tuple[Column, ...] = ()
    if isinstance(x, pd.DataFrame) or np.ndim(_array(x)) == 2:
        columns = columns_of(schema)
        records = _table(x, columns)
    elif schema is not None:
        raise UserError("schema= is for tables, and X holds images.")
    else:
        records = _images(_array(x))
    labels, known = _labels(_array(y), classes)
    if len(labels) != len(records) or not len(records):
        raise UserError(f"X has {len(records):,} records and y has {len(labels):,} labels.")
    return OwnRecords(records, labels, known, columns)


def columns_of(schema: Schema | None) -> tuple[Column, ...]:
    """The columns that a schema states.

    Args:
        schema: `{"age": (18, 90), "income": (0.0, 1e5), "ward": ["north", "south"]}`, where a tuple
            is a range (of whole numbers if both ends are) and a list has categories; or `Column`s.

    Raises:
        UserError: There is no schema, or an entry is neither.

    >>> columns_of({"age": (18, 90)})
    (Column(name='age', low=18.0, high=90.0, categories=(), whole=True),)
    """
    if not schema:
        raise UserError(
            "a table needs schema=: ranges and categories, stated by you and not taken from the "
            'data, as in {"age": (18, 90), "ward": ["north", "south"]}.'
        )
    if isinstance(schema, Mapping):
        return tuple(_column(str(name), entry) for name, entry in schema.items())
    if not isinstance(schema, Sequence):
        raise UserError(f"schema={schema!r} is neither a mapping nor a list of fedsynth.Column.")
    for entry in schema:
        if not isinstance(entry, Column):
            raise UserError(f"schema: {entry!r} is not a fedsynth.Column.")
    return tuple(schema)


def _column(name: str, entry: Any) -> Column:
    if isinstance(entry, Column):
        return entry
    if isinstance(entry, list) and entry and len({str(item) for item in entry}) == len(entry):
        return Column(name, categories=tuple(str(item) for item in entry))
    numbers = isinstance(entry, tuple) and len(entry) == 2
    if numbers and all(isinstance(end, int | float) and math.isfinite(end) for end in entry):
        low, high = entry
        if low < high:
            whole = isinstance(low, int) and isinstance(high, int)
            return Column(name, float(low), float(high), whole=whole)
    raise UserError(
        f"schema: {name}={entry!r} is neither a range (low, high) with low < high nor a list of "
        "different categories."
    )


def _table(x: Any, columns: tuple[Column, ...]) -> np.ndarray:
    names = [column.name for column in columns]
    if isinstance(x, pd.DataFrame):
        given = [str(name) for name in x.columns]
        for name in given:
            if name not in names:
                raise UserError(
                    f"schema says nothing of column {name!r} of X.{nearest(name, names)} "
                    "Add it, or drop the column."
                )
        for name in names:
            if given.count(name) != 1:
                raise UserError(f"X has {given.count(name)} columns {name!r}, and schema has one.")
        values = [x.iloc[:, given.index(name)].to_numpy() for name in names]
    else:
        array = _array(x)
        if array.shape[1] != len(names):
            raise UserError(f"X has {array.shape[1]} columns, and schema has {len(names)}.")
        values = list(array.T)
    return encode(columns, values, "X")


def _images(x: np.ndarray) -> np.ndarray:
    """Images as uint8 [n, c, h, w]."""
    images = x[:, None] if x.ndim == 3 else x
    if images.ndim != 4 or images.shape[1] not in CHANNELS or 0 in images.shape:
        last = images.ndim == 4 and images.shape[3] in CHANNELS
        raise UserError(
            f"X must be images [n, h, w] or [n, c, h, w] with 1 or 3 channels, or a table "
            f"[n, columns]; it is {list(x.shape)}."
            + (" Give X.transpose(0, 3, 1, 2)." if last else "")
        )
    if images.dtype == np.uint8:
        return images
    if not np.issubdtype(images.dtype, np.floating):
        raise UserError(f"X must be uint8, or floats from 0 to 1; it is {images.dtype}.")
    bad = np.argwhere(~((images >= 0) & (images <= 1)))  # NaN is neither
    if len(bad):
        raise UserError(
            f"X{bad[0].tolist()} is not from 0 to 1 ({len(bad):,} values are so). Scale X by "
            "constants of your own, not by those of the data."
        )
    return np.rint(images * 255).astype(np.uint8)


def _labels(y: np.ndarray, classes: Sequence[Any] | None) -> tuple[np.ndarray, np.ndarray]:
    """Labels as indices, and the classes that they point to."""
    if y.ndim != 1:
        raise UserError(f"y must have one dimension; it is {list(y.shape)}.")
    missing = np.flatnonzero(pd.isna(y))
    if len(missing):
        raise UserError(f"y[{missing[0]}] is missing ({len(missing):,} labels are so).")
    if classes is None:
        try:
            known, labels = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise UserError("y has labels of different types: give numbers, or texts.") from error
        return labels.astype(np.int64), known
    known = _array(classes)
    if known.ndim != 1 or not len(known) or len(set(known.tolist())) < len(known):
        raise UserError(f"classes={classes!r} must be different labels.")
    index = {label: i for i, label in enumerate(known.tolist())}
    labels = np.array([index.get(label, -1) for label in y.tolist()], np.int64)
    outside = np.flatnonzero(labels < 0)
    if len(outside):
        raise UserError(f"y[{outside[0]}] is not in classes= ({len(outside):,} labels are so).")
    return labels, known


def _of_torch(data: Dataset[Any]) -> tuple[Any, Any]:
    """All images and labels of a torch data set, after its own transforms."""
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return data.tensors
    try:
        pairs = [data[i] for i in range(len(data))]  # type: ignore[arg-type]
        images = np.stack([_image(image) for image, _ in pairs])
        return images, np.array([int(label) for _, label in pairs])
    except (TypeError, ValueError) as error:
        raise UserError(
            "the torch data set must have a length and items (image, label), with images of one "
            "shape and whole labels."
        ) from error


def _image(image: Any) -> np.ndarray:
    """One image [c, h, w]; Pillow's have their channels last."""
    array = _array(image)
    if isinstance(image, torch.Tensor | np.ndarray) or array.ndim == 2:
        return array[None] if array.ndim == 2 else array
    return array.transpose(2, 0, 1)


def _array(values: Any) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        return np.asarray(values.detach().cpu())
    try:
        return np.asarray(values)
    except ValueError as error:
        raise UserError("X, y and classes must be rectangular arrays.") from error
