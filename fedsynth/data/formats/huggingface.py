"""A Hugging Face data set on disk as a data set: `data=file:FOLDER`, as `save_to_disk` writes it.

Read with pyarrow alone; the package `datasets` is not needed. A column of images and one of labels
(`ClassLabel`, or named `label` in `schema.yaml` in the folder) make a set of images; any other set
is a table, for which the schema states the columns. `party:` in the schema names the column that
tells parties apart.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError, allowed, nearest
from fedsynth.data.formats import image_folder
from fedsynth.data.formats.own_facts import NO_PARTIES, OwnFacts, checked, cut, image_facts, natural
from fedsynth.data.formats.schema_file import Schema, category_text, needed_schema, read_schema
from fedsynth.data.formats.table_file import Table, arrow, opened_table

WHOLE, STATE, INFO = "dataset_dict.json", "state.json", "dataset_info.json"


def is_saved(path: Path) -> bool:
    """True if `save_to_disk` wrote this folder."""
    return (path / WHOLE).is_file() or ((path / STATE).is_file() and (path / INFO).is_file())


def describe(name: str, path: Path, stamp: tuple[object, ...]) -> OwnFacts:
    """The public facts, from the features, the columns of label and party, and the first image."""
    return _opened(name, path, stamp).facts


def read(
    name: str, path: Path, split: str, stamp: tuple[object, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Records and labels of a split."""
    found = _opened(name, path, stamp)
    labels = found.facts.train if split == "train" else found.facts.test
    if found.rows:
        return found.rows[split], labels
    saved, indices = found.images[split]
    shape, place = found.facts.info.shape, f"{path}, column {saved.image!r}"
    images = np.empty((len(indices), *shape), np.uint8)
    column = saved.table.column(saved.image)
    for row, index in enumerate(indices.tolist()):
        at = f"{place}, record {index + 1}"
        picture = _picture(column[index].as_py(), at)
        images[row] = image_folder.pixels_of(picture, shape, found.size, at)
    return images, labels


@dataclass(frozen=True, eq=False)
class _Saved:
    """One saved split: its Arrow table and its features."""

    table: Any
    features: Mapping[str, Any]
    image: str = ""  # the column of the images


@dataclass(frozen=True, eq=False)
class _Opened:
    facts: OwnFacts
    rows: dict[str, np.ndarray]  # of a table, by split
    images: dict[str, tuple[_Saved, np.ndarray]]  # of images: where they are, by split
    size: tuple[int, int] | None


@functools.lru_cache(maxsize=2)
def _opened(name: str, path: Path, _stamp: tuple[object, ...]) -> _Opened:
    splits = _splits(path)
    train = splits["train"]
    kinds = {k: f.get("_type") for k, f in train.features.items() if isinstance(f, Mapping)}
    pictures = [column for column, kind in kinds.items() if kind == "Image"]
    if not pictures:
        return _table(name, path, splits)
    schema = read_schema(path) or Schema(path)
    image = _column(schema.image_name or pictures[0], pictures, "image", path)
    labels_in = [column for column, kind in kinds.items() if kind == "ClassLabel"]
    if not labels_in and not schema.label_name:
        raise UserError(
            f"{path}: no column is a ClassLabel. Name the column of the labels with `label:` in "
            f"schema.yaml in that folder. {allowed(c for c in train.features if c != image)}"
        )
    label = _column(schema.label_name or labels_in[0], train.features, "label", path)
    splits = {split: _Saved(s.table, s.features, image) for split, s in splits.items()}
    return _with_images(name, path, splits, label, schema)


def _with_images(
    name: str, path: Path, splits: Mapping[str, _Saved], label: str, schema: Schema
) -> _Opened:
    train = splits["train"]
    texts = {split: _texts(saved, label) for split, saved in splits.items()}
    names = _class_names(train.features[label]) or natural({t for c in texts.values() for t in c})
    labels = {split: _positions(found, names, label, path) for split, found in texts.items()}
    owners = NO_PARTIES
    parties: tuple[str, ...] = ()
    if schema.party_name:
        column = _column(schema.party_name, train.features, "party", path)
        held = _texts(train, column)
        parties = _class_names(train.features[column]) or natural(set(held))
        owners = _positions(held, parties, column, path)
    everything = np.arange(len(labels["train"]))
    if "test" in splits:
        chosen = {"train": everything, "test": np.arange(len(labels["test"]))}
    else:
        kept, held_out = cut(labels["train"])
        chosen = {"train": kept, "test": held_out}
        labels = {"train": labels["train"][kept], "test": labels["train"][held_out]}
        owners = owners[kept] if len(owners) else owners
    first = _picture(train.table.column(train.image)[0].as_py(), f"{path}, record 1")
    height, width = schema.size or (first.height, first.width)
    info = image_facts(name, (image_folder.channels_of(first), height, width), names)
    seen = f"the columns {label!r} and {schema.party_name or 'no other'}, and the first image"
    facts = checked(OwnFacts(info, labels["train"], labels["test"], parties, owners, seen))
    images = {s: (splits.get(s, train), indices) for s, indices in chosen.items()}
    return _Opened(facts, {}, images, schema.size)


def _table(name: str, path: Path, splits: Mapping[str, _Saved]) -> _Opened:
    """A set without images, by its schema."""
    schema = needed_schema(path)
    tables = {split: _columns(saved) for split, saved in splits.items()}
    facts, rows = opened_table(
        name,
        schema,
        tables["train"],
        source=f"{path}, split train",
        folder=path,
        test=tables.get("test"),
    )
    return _Opened(facts, rows, {}, None)


def looked_at(path: Path) -> tuple[list[tuple[str, bool]], str]:
    """For a template: the columns and whether each holds numbers by its feature, and what was
    read."""
    features = _splits(path)["train"].features
    kinds = ("float", "int", "uint", "double")
    found = [
        (name, str(about.get("dtype", "")).startswith(kinds) and "names" not in about)
        for name, about in features.items()
    ]
    return found, f"Looked at: the features in {INFO}."


def _columns(saved: _Saved) -> Table:
    """The columns of a table; labels of a ClassLabel by their names."""
    return {column: _texts(saved, column) for column in saved.table.column_names}


def _texts(saved: _Saved, column: str) -> list[Any]:
    values: list[Any] = saved.table.column(column).to_pylist()
    names = _class_names(saved.features.get(column))
    return [names[value] for value in values] if names else values


def _class_names(feature: Any) -> tuple[str, ...]:
    if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel":
        return tuple(str(name) for name in feature.get("names") or ())
    return ()


def _positions(values: Sequence[Any], names: tuple[str, ...], column: str, path: Path) -> Any:
    index = {name: i for i, name in enumerate(names)}
    found = np.array([index.get(category_text(value), -1) for value in values], np.int64)
    bad = np.flatnonzero(found < 0)
    if len(bad):
        raise UserError(f"{path}: column {column!r} of record {bad[0] + 1} has no known value.")
    return found


def _column(name: str, columns: Any, key: str, path: Path) -> str:
    if name not in columns:
        raise UserError(
            f"{path}: {key}={name!r} is not a column.{nearest(name, columns)} {allowed(columns)}"
        )
    return name


def _splits(path: Path) -> dict[str, _Saved]:
    """The splits train and, where there is one, test."""
    if not (path / WHOLE).is_file():
        return {"train": _saved(path)}
    try:
        names = json.loads((path / WHOLE).read_text(encoding="utf-8"))["splits"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path / WHOLE} cannot be read: {error}.") from error
    if "train" not in names:
        raise UserError(f"{path} has the splits {', '.join(names)}; needed is train, and test.")
    return {split: _saved(path / split) for split in ("train", "test") if split in names}


def _saved(folder: Path) -> _Saved:
    pyarrow = arrow(f"the Hugging Face data set {folder}")
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        features = json.loads((folder / INFO).read_text(encoding="utf-8"))["features"]
        parts = []
        for file in state["_data_files"]:
            with pyarrow.memory_map(str(folder / Path(file["filename"]).name)) as stream:
                parts.append(pyarrow.ipc.open_stream(stream).read_all())
        table = pyarrow.concat_tables(parts)
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
        raise UserError(f"{folder} is not a data set saved by save_to_disk ({error}).") from error
    if not table.num_rows:
        raise UserError(f"{folder} holds no records.")
    return _Saved(table, features)


def _picture(value: Any, place: str) -> Any:
    """The image of a record: its bytes, or the file that its path names."""
    content = value.get("bytes") if isinstance(value, Mapping) else None
    if content is not None:
        return image_folder.opened_image(io.BytesIO(content), place)
    name = value.get("path") if isinstance(value, Mapping) else None
    if not name:
        raise UserError(f"{place} holds no image.")
    return image_folder.opened_image(Path(name), place)
