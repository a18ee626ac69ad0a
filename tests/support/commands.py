"""The command `fedsynth`, called in this process through its own entry."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

from fedsynth.cli.main import app


@dataclass(frozen=True)
class Called:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def _leave(code: int) -> None:
    raise SystemExit(code)


def call(words: Sequence[str]) -> Called:
    """Run `fedsynth WORDS`; what would start work raises AssertionError instead."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(os, "_exit", side_effect=_leave),
        mock.patch("fedsynth.api.launch.start", side_effect=AssertionError("a run was started")),
        mock.patch("fedsynth.cli.reproduce._start", side_effect=AssertionError("it was started")),
    ):
        try:
            app.main(list(words), prog_name="fedsynth")
        except SystemExit as left:
            code = left.code
    return Called(
        int(code or 0) if not isinstance(code, str) else 1, out.getvalue(), err.getvalue()
    )
