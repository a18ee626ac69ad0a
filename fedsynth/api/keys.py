"""Keyword arguments as keys of a run: the same names, nesting and lists as on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.settings import plain


def overrides_of(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Nested keys and values, as `parse_overrides` makes them of words.

    Args:
        keys: `{"psg": {"spc": 5}}` or `{"psg.spc": 5}`; lists, tuples and arrays make a grid.

    Raises:
        UserError: A key is given twice, or has both a value and keys below it.

    >>> overrides_of({"epsilon": (1, 10), "psg.spc": 5, "psg": {"runs": 2}})
    {'epsilon': [1, 10], 'psg': {'spc': 5, 'runs': 2}}
    """
    values: dict[str, Any] = {}
    for key, value in keys.items():
        _put(values, key, key.split("."), _plain(value))
    return values


def path_of(value: Any, key: str) -> Path:
    """A path that a caller gives, as text or path.

    Raises:
        UserError: It is neither; names `key`.
    """
    if not isinstance(value, str | Path) or not str(value):
        raise UserError(f"{key}={value!r} is not a path: give a text or a pathlib.Path.")
    return Path(value)


def _put(target: dict[str, Any], key: str, path: list[str], value: Any) -> None:
    *outer, last = path
    if not all(path):
        raise UserError(f"{key!r} is not a key: write KEY or METHOD.KEY.")
    for part in outer:
        target = target.setdefault(part, {})
        if not isinstance(target, dict):
            raise UserError(f"{key}: {part}= was given a value already.")
    if isinstance(value, dict) and isinstance(target.get(last), dict):
        for name, item in value.items():
            _put(target[last], f"{key}.{name}", [name], item)
    elif last in target:
        raise UserError(f"{key}= is given twice: give one of the two values.")
    else:
        target[last] = value


def _plain(value: Any) -> Any:
    """Paths, arrays and numbers of numpy, and members of enums, as plain values."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return plain(value)


def words_of(overrides: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The words of a command line that gives these keys, for a run's record of its command.

    >>> words_of({"scenario": "split_mnist", "epsilon": [1, 10], "psg": {"spc": 5}})
    ['scenario=split_mnist', 'epsilon=1,10', 'psg.spc=5']
    """
    words = []
    for key, value in overrides.items():
        if isinstance(value, Mapping) and value and key != "options":
            words += words_of(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            words.append(f"{prefix}{key}={','.join(map(_word, value))}")
        else:
            words.append(f"{prefix}{key}={_word(value)}")
    return words


def _word(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
