"""Errors that the user can correct: one clear message, a non-zero exit code, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """An error that the user can correct; `run.main` prints it as one message."""


def nearest(name: object, allowed: Iterable[object]) -> str:
    """Return " Did you mean 'x'?" for the closest of `allowed`, or "" when nothing is close."""
    close = difflib.get_close_matches(str(name), [str(a) for a in allowed], n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def unknown(kind: str, name: object, allowed: Iterable[object]) -> UserError:
    """The error for an unknown name: the name, the allowed names and the nearest of them."""
    names = sorted(str(a) for a in allowed)
    return UserError(f"unknown {kind} {name!r}.{nearest(name, names)} Allowed: {', '.join(names)}.")
