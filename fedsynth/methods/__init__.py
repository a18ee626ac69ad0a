"""The methods, found by themselves: every `Method` subclass in a file of this folder.

Files that start with an underscore hold parts that several methods share.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping

from fedsynth.core.errors import unknown
from fedsynth.methods.method import Method


@functools.cache
def all_methods() -> Mapping[str, Method]:
    """One instance of every method, by name."""
    found: dict[str, Method] = {}
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        loaded = importlib.import_module(module.name)
        for _, cls in inspect.getmembers(loaded, inspect.isclass):
            if (
                issubclass(cls, Method)
                and cls.__module__ == loaded.__name__
                and "name" in vars(cls)
            ):
                if cls.name in found:
                    raise ValueError(f"two methods are called {cls.name!r}")
                found[cls.name] = cls()
    return dict(sorted(found.items()))


def method(name: str) -> Method:
    """The method of this name."""
    methods = all_methods()
    if name not in methods:
        raise unknown("method", name, methods)
    return methods[name]
