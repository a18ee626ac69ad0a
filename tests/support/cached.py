"""Clears the caches of functions around a test that replaces what they read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType


@contextlib.contextmanager
def cleared(module: ModuleType, *names: str) -> Iterator[None]:
    """Clear the caches of these functions of a module before and after the block."""
    functions = [getattr(module, name) for name in names]
    for function in functions:
        function.cache_clear()
    try:
        yield
    finally:
        for function in functions:
            function.cache_clear()
