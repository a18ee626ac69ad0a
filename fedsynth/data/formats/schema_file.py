"""The schema of a table of one's own, in a YAML file beside it: `visits.schema.yaml` of
`visits.csv`, or `schema.yaml` in a folder.

    columns:
      age: {range: [0, 120], whole: true}
      pressure: {range: [60, 220], missing: 120}
      ward: {categories: [north, south]}
      outcome: {categories: [healthy, ill]}
      hospital: {categories: [city, lake]}
      id: ignore
    label: outcome          # its categories are the names of the classes
    party: hospital         # optional: its categories are the names of the parties
    test: 0.2               # a share, or the name of a file with the test records

Claim: ranges and categories are those that the file states; nothing is taken from the records.
`template` writes such a file with the names of the columns alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fedsynth.core.errors import UserError, allowed, nearest, unknown
from fedsynth.core.types import Column
from fedsynth.data.formats.own_facts import TEST_SHARE, companions

KEYS = ("columns", "label", "party", "test", "size", "classes", "image")
IGNORE = "ignore"
PLACEHOLDERS = ("LOW", "HIGH", "CATEGORY")


@dataclass(frozen=True)
class Schema:
    """The statement of a data holder on the columns of a table, or on a folder of images.

    Attributes:
        path: The file, for messages.
        columns: The columns of the records, without label and party.
        ignored: Columns that are left out.
        missing: The stated stand-in for a missing number, by column.
        label: The column of the label, with the names of the classes.
        party: The column of the party, with the names of the parties; None if there is none.
        test: The share of test records, or the name of their file.
        size: Height and width that images are scaled to.
    """

    path: Path
    columns: tuple[Column, ...] = ()
    ignored: tuple[str, ...] = ()
    missing: Mapping[str, float] = field(default_factory=dict)
    label: Column | None = None
    party: Column | None = None
    test: float | str = TEST_SHARE
    size: tuple[int, int] | None = None
    label_name: str = ""  # of images: the column of the label
    party_name: str = ""  # of images: the column of the party
    image_name: str = ""  # the column of the image


def read_schema(path: Path) -> Schema | None:
    """The schema beside a file or in a folder; None if there is none.

    Raises:
        UserError: It cannot be read, or states something that is not understood.
    """
    file = next((place for place in companions(path) if place.is_file()), None)
    if file is None:
        return None
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{file} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, Mapping):
        raise UserError(f"{file} must hold keys and values. {allowed(KEYS)}")
    for key in values:
        if key not in KEYS:
            raise UserError(f"{file}: {unknown('key', key, KEYS)}")
    return _schema(file, values)


def needed_schema(path: Path) -> Schema:
    """The schema of a table, with its columns and its label.

    Raises:
        UserError: There is none, or it states no columns or no label.
    """
    schema = read_schema(path)
    place = companions(path)[0]
    if schema is None:
        raise UserError(
            f"{path} is a table and needs a schema: there is no {place}. "
            f"`fedsynth fetch schema {path}` writes a template of it."
        )
    if not schema.columns:
        raise UserError(f"{place} states no columns besides label and party.")
    if schema.label is None:
        raise UserError(f"{place} states no label: the column that classifiers predict.")
    return schema


def _schema(file: Path, values: Mapping[str, Any]) -> Schema:
    stated = values.get("columns") or {}
    if not isinstance(stated, Mapping):
        raise UserError(f"{file}: columns={stated!r} must be a mapping of names to what they hold.")
    columns: dict[str, Column] = {}
    missing: dict[str, float] = {}
    ignored = tuple(str(name) for name, about in stated.items() if about == IGNORE)
    for name, about in stated.items():
        if about != IGNORE:
            columns[str(name)], stand_in = _column(file, str(name), about)
            if stand_in is not None:
                missing[str(name)] = stand_in
    label = _named(file, "label", values.get("label"), columns)
    party = _named(file, "party", values.get("party"), columns)
    if label and party and label.name == party.name:
        raise UserError(f"{file}: label and party are both {label.name!r}.")
    rest = tuple(c for c in columns.values() if c not in (label, party))
    return Schema(
        file,
        rest,
        ignored,
        missing,
        label,
        party,
        _test(file, values.get("test", TEST_SHARE)),
        _size(file, values.get("size")),
        str(values.get("label") or ""),
        str(values.get("party") or ""),
        str(values.get("image") or ""),
    )


def _column(file: Path, name: str, about: Any) -> tuple[Column, float | None]:
    """One column, and the stand-in for a missing number."""
    forms = "{range: [LOW, HIGH]}, {categories: [A, B, ...]} or ignore"
    if not isinstance(about, Mapping) or ("range" in about) == ("categories" in about):
        raise UserError(f"{file}: column {name!r} is {about!r}, and must be {forms}.")
    for key in about:
        if key not in ("range", "categories", "whole", "missing"):
            keys = ("range", "categories", "whole", "missing")
            raise UserError(f"{file}: column {name!r}: {unknown('key', key, keys)}")
    if "categories" in about:
        names = about["categories"]
        texts = [category_text(n) for n in names] if isinstance(names, list) else []
        if not texts or len(set(texts)) < len(texts) or set(texts) & set(PLACEHOLDERS):
            raise UserError(
                f"{file}: column {name!r}: categories={names!r} must list different categories, "
                "stated by you."
            )
        return Column(name, categories=tuple(texts)), None
    ends = about["range"]
    numbers = isinstance(ends, list) and len(ends) == 2 and all(map(_finite, ends))
    if not numbers or not ends[0] < ends[1]:
        raise UserError(
            f"{file}: column {name!r}: range={ends!r} must be [LOW, HIGH] with two numbers, the "
            "lower first, stated by you."
        )
    whole, stand_in = about.get("whole", False), about.get("missing")
    if not isinstance(whole, bool):
        raise UserError(f"{file}: column {name!r}: whole={whole!r} must be true or false.")
    if stand_in is not None and not (_finite(stand_in) and ends[0] <= stand_in <= ends[1]):
        raise UserError(
            f"{file}: column {name!r}: missing={stand_in!r} must be a number of the range {ends}."
        )
    return Column(name, float(ends[0]), float(ends[1]), whole=whole), stand_in


def _named(file: Path, key: str, name: Any, columns: Mapping[str, Column]) -> Column | None:
    """The column that `label` or `party` names; of images there are no columns."""
    if name is None or not columns:
        return None
    if name not in columns:
        raise UserError(
            f"{file}: {key}={name!r} is not one of the columns.{nearest(name, columns)} "
            f"{allowed(columns)}"
        )
    if not columns[name].categories:
        raise UserError(f"{file}: {key}={name!r} has a range, and must have categories.")
    return columns[name]


def _test(file: Path, value: Any) -> float | str:
    if isinstance(value, str) and value:
        return value
    if not _finite(value) or not 0 < value < 1:
        raise UserError(f"{file}: test={value!r} must be a share between 0 and 1, or a file.")
    return float(value)


def _size(file: Path, value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    sides = value if isinstance(value, list) else [value, value]
    if len(sides) != 2 or not all(type(side) is int and 4 <= side <= 1024 for side in sides):
        raise UserError(f"{file}: size={value!r} must be [HEIGHT, WIDTH], each from 4 to 1024.")
    return sides[0], sides[1]


def _finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


def category_text(value: Any) -> str:
    """A category as text; whole numbers without a decimal point, as YAML and files differ.

    >>> category_text(1.0), category_text(True), category_text("1")
    ('1', 'true', '1')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def template(source: str, columns: Sequence[tuple[str, bool]], looked: str) -> str:
    """The text of a schema to be filled in.

    Args:
        source: The name of the table.
        columns: The name of each column, and whether it seems to hold numbers.
        looked: A sentence on what was looked at.
    """
    lines = [
        f"# Schema of {source}. {looked}",
        "# Ranges and categories were not looked at: state them from what is known without these",
        "# records, in place of LOW, HIGH and CATEGORY. Write `ignore` for a column to leave out.",
        "columns:",
    ]
    for name, numeric in columns:
        key = yaml.safe_dump(name, default_flow_style=True, width=10**6).split("\n")[0]
        form = "{range: [LOW, HIGH]}" if numeric else "{categories: [CATEGORY]}"
        lines.append(f"  {key}: {form}")
    lines += [
        "label: CATEGORY  # the column to predict; its categories are the names of the classes",
        "# party: COLUMN  # the column that tells parties apart, if there is one",
        "test: 0.2  # a share of the records, or the name of a file with the test records",
    ]
    return "\n".join(lines) + "\n"
