"""Errors that the user can correct: one clear message, a non-zero exit code, no traceback."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum

MAX_LISTED = 160  # characters of a list of names in a message
LISTS = {"method": "fedsynth list methods", "data set": "fedsynth list data"}


class UserError(Exception):
    """An error that the user can correct; `run.main` prints it as one message."""


class JobsFailed(UserError):
    """Some jobs of a run failed. The others are done, and the report is written."""


class Refusal(StrEnum):
    """The reason for which a party does not answer, as its error reply states it."""

    BUDGET = "budget"  # of this job, or of the party's lifetime
    POLICY = "policy"  # the party's own policy does not allow it
    LEDGER = "ledger"  # the party's record of its spending is damaged or does not fit
    REQUEST = "request"  # the proposal or the request cannot be read, or comes out of turn
    DATA = "data"  # the party's own data cannot be used
    INTERNAL = "internal"  # all else; the details stay in the party's log


class Refused(UserError):
    """A refusal of a party. Its text is written for the server: public facts only.

    A party sends the text of no other exception."""

    def __init__(self, code: Refusal, text: str) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[type, tuple[Refusal, str]]:
        """Restore both arguments from a pickle."""
        return type(self), (self.code, str(self))


def nearest(name: object, allowed: Iterable[object]) -> str:
    """Return " Did you mean 'x'?" for the closest of `allowed`, or "" when nothing is close."""
    names = {str(a).lower(): str(a) for a in allowed}
    close = difflib.get_close_matches(str(name).lower(), names, n=1, cutoff=0.5)
    return f" Did you mean {names[close[0]]!r}?" if close else ""


def allowed(names: Iterable[object], command: str = "") -> str:
    """A sentence with the names that are allowed: the first ones of a long list, and the command
    that shows all of them."""
    shown: list[str] = []
    every = [str(name) for name in names]
    for name in every:
        if shown and len(", ".join([*shown, name])) > MAX_LISTED:
            rest = f"`{command}` lists all {len(every)}" if command else f"{len(every)} in all"
            return f"Allowed: {', '.join(shown)}, ... ({rest})."
        shown.append(name)
    return f"Allowed: {', '.join(shown)}."


def unknown(kind: str, name: object, names: Iterable[object]) -> UserError:
    """The error for an unknown name: the name, the nearest one, and what is allowed."""
    every = sorted(str(a) for a in names)
    command = LISTS.get(kind, "")
    return UserError(f"unknown {kind} {name!r}.{nearest(name, every)} {allowed(every, command)}")


def exit_code(command: Callable[[], object]) -> int:
    """Run a command and return its exit code: 0, or 2 after a `UserError`, which is printed."""
    try:
        command()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
