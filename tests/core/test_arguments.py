"""Errors of command-line options are one line with the nearest valid word."""

from __future__ import annotations

import pytest

from fedsynth.core.arguments import ArgumentParser


@pytest.fixture
def parser() -> ArgumentParser:
    made = ArgumentParser(prog="fedsynth thing")
    commands = made.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show")
    show.add_argument("--rows", type=int, choices=(1, 2))
    return made


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shwo"], "unknown command 'shwo'. Did you mean 'show'? Allowed: show."),
        (["show", "--rows", "3"], "unknown --rows '3'. Allowed: 1, 2."),
        (["show", "--rows", "x"], "argument --rows: invalid int value: 'x'."),
        (["show", "--row", "1"], "'--row' is not understood. Did you mean '--rows'?"),
        ([], "the following arguments are required: command."),
    ],
)
def test_an_error_is_one_line(parser, words, message, capsys) -> None:
    with pytest.raises(SystemExit) as left:
        parser.parse_args(words)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")
    assert left.value.code == 2


def test_a_right_line_is_understood(parser) -> None:
    assert parser.parse_args(["show", "--rows", "2"]).rows == 2
