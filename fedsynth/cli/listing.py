"""What there is: `--list`, and the keys of `--help`, from the registries themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from fedsynth.core.settings import describe
from fedsynth.data import partition
from fedsynth.data import registry as datasets
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment.config import RunConfig
from fedsynth.experiment.scenario import ScenarioConfig
from fedsynth.experiment.scenario_files import read_yaml, scenario_files
from fedsynth.methods import all_methods

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


def catalogue() -> str:
    """Scenarios, methods, data sets and partitioners, a line each."""
    methods = all_methods().values()
    parts = {
        "Scenarios (scenario=)": [
            (name, str(read_yaml(path).get("about", ""))) for name, path in scenario_files().items()
        ],
        "Methods (method=)": [(m.name, m.summary) for m in methods],
        "Data sets (data=)": [(n, datasets.find(n).about) for n in datasets.names()],
        "Partitioners (partition=)": [(n, partition.find(n).about) for n in partition.names()],
    }
    return "\n\n".join(f"{title}\n{_lines(rows)}" for title, rows in parts.items())


def keys() -> str:
    """Every key with its default and its line of documentation."""
    text = _lines(_rows(RunConfig) + _rows(ScenarioConfig))
    text += "\n\nEvaluation\n" + _lines(_rows(EvaluationConfig, "evaluation."))
    for m in all_methods().values():
        rows = _rows(m.Config, f"{m.name}.")
        if rows:
            text += "\n\n" + textwrap.fill(f"{m.name}: {m.summary}", WIDTH) + "\n" + _lines(rows)
    return text


def _rows(cls: type, prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for name, default, about in describe(cls):
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        rows.append((f"{prefix}{name}={'' if shown is None else shown}", about))
    return rows
