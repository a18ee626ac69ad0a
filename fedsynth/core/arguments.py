"""A parser of command lines whose errors are one line that teaches, like those of the settings."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from fedsynth.core.errors import allowed, nearest


class ArgumentParser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` with one message per error: the value, the nearest valid one, and
    what is allowed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with code 2."""
        print(f"error: {message.rstrip('.')}. `{self.prog} --help` explains it.", file=sys.stderr)
        raise SystemExit(2)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The values; an unknown option is named with the nearest known one."""
        values, unknown = self.parse_known_args(args, namespace)
        if unknown:
            options = [text for action in self._all_actions() for text in action.option_strings]
            word = unknown[0]
            near = nearest(word, options) if word.startswith("-") else ""
            self.error(f"{word!r} is not understood.{near} {allowed(options)}")
        return values

    def _all_actions(self) -> list[argparse.Action]:
        """The actions of this parser and of its commands."""
        found = list(self._actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += [each for parser in action.choices.values() for each in parser._actions]
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = "/".join(action.option_strings) or action.dest
            choices = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(
                None, f"unknown {name} {str(value)!r}.{nearest(value, choices)} {allowed(choices)}"
            )
