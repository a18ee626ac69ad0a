"""Lists and help texts, taken from the registries and the settings themselves."""

from __future__ import annotations

import contextlib
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fedsynth.core.errors import UserError, nearest, unknown
from fedsynth.core.plugins import broken
from fedsynth.core.settings import describe
from fedsynth.data import partition
from fedsynth.data import registry as datasets
from fedsynth.experiment.scenario_files import read_yaml, scenario_files
from fedsynth.methods.registry import (
    all_methods,
    is_method,
    load_plugins,
    method,
    method_names,
    summaries,
)

if TYPE_CHECKING:  # help imports it, lists do not
    from fedsynth.methods.method import Method

WIDTH = 98


def _lines(rows: Iterable[tuple[str, str]]) -> str:
    rows = list(rows)
    column = max(len(name) for name, _ in rows) + 4
    return "\n".join(
        textwrap.fill(
            about,
            WIDTH,
            initial_indent=f"  {name}".ljust(column),
            subsequent_indent=" " * column,
        )
        for name, about in rows
    )


def _scenarios() -> list[tuple[str, str]]:
    return [
        (name, str(read_yaml(path).get("about", ""))) for name, path in scenario_files().items()
    ]


CATALOGUE: dict[str, tuple[str, Callable[[], list[tuple[str, str]]]]] = {
    "scenarios": ("Scenarios (scenario=)", _scenarios),
    "methods": ("Methods (method=)", lambda: list(summaries().items())),
    "data": (
        "Data sets (data=)",
        lambda: [(name, datasets.find(name).about) for name in datasets.names()],
    ),
    "partitions": (
        "Partitioners (partition=)",
        lambda: [(name, partition.find(name).about) for name in partition.names()],
    ),
}


def catalogue(kinds: Iterable[str] = tuple(CATALOGUE)) -> str:
    """Scenarios, methods, data sets and partitioners, one line each; then what is broken."""
    parts = (CATALOGUE[kind] for kind in kinds)
    text = "\n\n".join(f"{title}\n{_lines(rows())}" for title, rows in parts)
    if reasons := [f"\n  {label}: {why}" for label, why in broken().items()]:
        text += "\n\nBroken" + "".join(reasons)
    return text


def print_catalogue(words: Sequence[str]) -> int:
    """The command `fedsynth list [KIND] [plugin=PATH,PATH]`; returns the exit code."""
    kinds = [word for word in words if not word.startswith("plugin=")]
    for kind in kinds:
        if kind not in CATALOGUE:
            print(f"error: {unknown('kind', kind, CATALOGUE)}", file=sys.stderr)
            return 2
    for path in _plugin_paths(words):
        with contextlib.suppress(UserError):  # listed as broken
            load_plugins([path])
    print(catalogue(kinds or tuple(CATALOGUE)))
    return 0


def _plugin_paths(words: Sequence[str]) -> list[str]:
    """The paths in words of the form `plugin=PATH,PATH`."""
    given = [word.removeprefix("plugin=") for word in words if word.startswith("plugin=")]
    return [path for paths in given for path in paths.split(",")]


def print_topic(words: Sequence[str]) -> int:
    """The command `fedsynth help TOPIC [plugin=PATH,PATH]`; returns the exit code."""
    topics = [word for word in words if not word.startswith("plugin=")]
    try:
        load_plugins(_plugin_paths(words))
        print("\n\n".join(topic(name) for name in topics))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def topic(name: str) -> str:
    """The help text of a topic: a section of keys, a method, or a single key.

    Raises:
        UserError: There is no such topic.
    """
    sections = _sections()
    if name == "keys":
        return keys()
    if name in sections:
        return _lines(sections[name])
    if is_method(name):
        return _method_keys(method(name))
    section = name.rpartition(".")[0]
    if is_method(section):
        rows = _rows(method(section).Config, f"{section}.")
    else:
        rows = list(itertools.chain(*sections.values()))
    chosen = [(text, about) for text, about in rows if text.partition("=")[0] == name]
    if not chosen:
        names = ["keys", *sections, *method_names(), *(text.partition("=")[0] for text, _ in rows)]
        raise UserError(
            f"no help on {name!r}.{nearest(name, names)} Topics: keys, {', '.join(sections)}, the "
            "name of a method (`fedsynth list methods`), or a key."
        )
    return _lines(chosen)


def _sections() -> dict[str, list[tuple[str, str]]]:
    """The keys that are not a method's, with their documentation, by section."""
    from fedsynth.evaluation.config import EvaluationConfig
    from fedsynth.experiment.run_config import RunConfig
    from fedsynth.experiment.scenario_config import ScenarioConfig

    return {
        "run": _rows(RunConfig),
        "scenario": _rows(ScenarioConfig),
        "evaluation": _rows(EvaluationConfig, "evaluation."),
    }


def keys() -> str:
    """Every key with its default and its line of documentation."""
    sections = _sections()
    text = _lines(sections["run"] + sections["scenario"])
    text += "\n\nEvaluation\n" + _lines(sections["evaluation"])
    for m in all_methods().values():
        text += "\n\n" + _method_keys(m)
    return text


def _method_keys(method_impl: Method[Any]) -> str:
    """A method's summary, its source and its keys."""
    head = textwrap.fill(f"{method_impl.name}: {method_impl.summary}", WIDTH)
    if method_impl.source:
        head += "\n" + textwrap.fill(f"Source: {method_impl.source}", WIDTH)
    rows = _rows(method_impl.Config, f"{method_impl.name}.")
    if method_impl.private:
        about = "without noise, as a reference that is NOT private: epsilon is infinite"
        rows.append((f"{method_impl.name}.noise=none", about))
    return "\n".join([head, *([_lines(rows)] if rows else [])])


def _rows(cls: type, prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for name, default, about in describe(cls):
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        rows.append((f"{prefix}{name}={'' if shown is None else shown}", about))
    return rows
