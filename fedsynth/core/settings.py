"""Settings as frozen dataclasses with documentation and limits per field.

`setting(...)` declares a field; `build(...)` makes an instance from the values of a YAML file or a
command line. Any wrong input is a `UserError` that names the key, the value, the allowed values and
the nearest valid name.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from fedsynth.core.errors import UserError, allowed, nearest

C = TypeVar("C")


def setting(
    default: Any,
    about: str,
    *,
    choices: Sequence[Any] | None = None,
    above: float | None = None,
    below: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    finite: bool = True,
    formerly: str | None = None,
) -> Any:
    """A dataclass field with its one-line documentation and its limits.

    `formerly` is a name that the key had before; it is still understood, with a note."""
    limits = {
        "formerly": formerly,
        "choices": choices,
        "above": above,
        "below": below,
        "at_least": at_least,
        "at_most": at_most,
        "finite": finite,
    }
    return dataclasses.field(default=default, metadata={"about": about, **limits})


def build(cls: type[C], values: Mapping[str, Any], path: str = "") -> C:
    """An instance of the dataclass `cls` from plain values, checked field by field."""
    values = canonical(cls, values, path)
    prefix = f"{path}." if path else ""
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    for name in values:
        if name not in fields:
            names = allowed([prefix + n for n in fields], f"fedsynth help {path or 'keys'}")
            raise UserError(f"unknown key '{prefix}{name}'.{nearest(name, fields)} {names}")
    made = {}
    for name, value in values.items():
        limits, key = fields[name].metadata, prefix + name
        try:
            made[name] = convert(value, hints[name], key)
        except UserError as error:
            within = "" if "llowed: " in str(error) else _within(limits)
            raise UserError(f"{error}{within}") from None
        _check_limits(made[name], limits, key)
    return cls(**made)


def _within(limits: Mapping[str, Any]) -> str:
    """A sentence with what a setting allows; empty if it has no limits."""
    if limits.get("choices") is not None:
        return f" {allowed(limits['choices'])}"
    words = {
        "above": "above {}",
        "at_least": "at least {}",
        "below": "below {}",
        "at_most": "at most {}",
    }
    given = [w.format(_limit(limits[k])) for k, w in words.items() if limits.get(k) is not None]
    return f" Allowed: {' and '.join(given)}." if given else ""


def former_names(cls: type) -> dict[str, str]:
    """Former name -> present name of the settings of `cls` that were renamed."""
    fields = dataclasses.fields(cls)
    return {f.metadata["formerly"]: f.name for f in fields if f.metadata.get("formerly")}


def canonical(cls: type, values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """`values` with former names of settings replaced by the present ones.

    Raises:
        UserError: A setting is given under both names.
    """
    renamed = former_names(cls)
    prefix = f"{path}." if path else ""
    made: dict[str, Any] = {}
    for name, value in values.items():
        present = renamed.get(name, name)
        if present in made or (present != name and present in values):
            raise UserError(f"{prefix}{name} is the former name of {prefix}{present}: give one.")
        if present != name:
            _note_once(f"{prefix}{name} is called {prefix}{present} now.")
        made[present] = value
    return made


@functools.cache
def _note_once(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def convert(value: Any, kind: Any, key: str) -> Any:
    """`value` as the type `kind`, or a UserError that names the key and what was expected."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if value is None and type(None) not in arguments:
        raise UserError(f"{key}= is empty: give a value, or leave the key out.")
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return convert(value, next(a for a in arguments if a is not type(None)), key)
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(convert(item, arguments[0], key) for item in items)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        _check_choice(convert(value, str, key), tuple(kind), key)
        return kind(value)
    converted = _CONVERTERS[origin or kind](value)
    if converted is None:
        raise UserError(f"{key}={value!r} is not {_IN_WORDS[origin or kind]}.")
    return converted


def _whole(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # not by way of a float, which has 53 bits
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return None if math.isnan(number) else number


_CONVERTERS: dict[Any, Callable[[Any], Any]] = {
    int: _whole,
    float: _number,
    bool: lambda value: value if isinstance(value, bool) else None,
    str: lambda value: value if isinstance(value, str) else None,
    dict: lambda value: dict(value) if isinstance(value, Mapping) else None,
}
_IN_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    dict: "a mapping of keys to values",
}


def _check_limits(value: Any, limits: Mapping[str, Any], key: str) -> None:
    for item in value if isinstance(value, tuple) else (value,):
        if item is None:
            continue
        if limits.get("choices") is not None:
            _check_choice(item, limits["choices"], key)
        if limits.get("finite") and isinstance(item, float) and math.isinf(item):
            raise UserError(f"{key}={item!r} must be a finite number.")
        if limits.get("above") is not None and not item > limits["above"]:
            raise UserError(f"{key}={item!r} must be above {_limit(limits['above'])}.")
        if limits.get("below") is not None and not item < limits["below"]:
            raise UserError(f"{key}={item!r} must be below {_limit(limits['below'])}.")
        if limits.get("at_least") is not None and not item >= limits["at_least"]:
            raise UserError(f"{key}={item!r} must be at least {_limit(limits['at_least'])}.")
        if limits.get("at_most") is not None and not item <= limits["at_most"]:
            raise UserError(f"{key}={item!r} must be at most {_limit(limits['at_most'])}.")


def _limit(number: float) -> str:
    """A limit as people write it: 1,000,000 and 1e-05."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:g}"


def _check_choice(value: Any, choices: Sequence[Any], key: str) -> None:
    if value not in choices:
        raise UserError(f"{key}={value!r} is unknown.{nearest(value, choices)} {allowed(choices)}")


def plain(value: Any) -> Any:
    """A setting's value as YAML and JSON have it: members of enums as their text."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value


def describe(cls: type) -> list[tuple[str, Any, str]]:
    """(name, default, documentation) of every field, for `--help` and `--list`."""
    hints = typing.get_type_hints(cls)
    return [(f.name, f.default, _about(f.metadata, hints[f.name])) for f in dataclasses.fields(cls)]


def choices_of(cls: type) -> dict[str, tuple[Any, ...]]:
    """The allowed values of the fields that have a closed vocabulary, by name."""
    hints = typing.get_type_hints(cls)
    found = {f.name: _choices(f.metadata, hints[f.name]) for f in dataclasses.fields(cls)}
    return {name: choices for name, choices in found.items() if choices}


def _choices(metadata: Mapping[str, Any], kind: Any) -> tuple[Any, ...]:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return tuple(kind)
    return tuple(metadata.get("choices") or ())


def _about(metadata: Mapping[str, Any], kind: Any) -> str:
    """The documentation of a field, with its choices if it has any."""
    about, choices = metadata.get("about", ""), _choices(metadata, kind)
    return f"{about} ({', '.join(map(str, choices))})" if about and choices else about
