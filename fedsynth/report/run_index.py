"""Runs of a folder side by side: accuracies, settings, and what their epsilons mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.core.errors import UserError
from fedsynth.core.plan import readable_view
from fedsynth.core.text import MISSING, epsilon_text
from fedsynth.experiment.evaluation_data import evaluation_data
from fedsynth.report.elements import Cell, Column, Row, Section, Table
from fedsynth.report.estimates import FinalResult, final_results
from fedsynth.report.guarantees import (
    RELATION_WORDS,
    Meaning,
    meaning_of,
    meanings,
    other_meanings,
)
from fedsynth.report.summary import frame
from fedsynth.storage.run_directory import CONFIG, METRICS, REPORT, RunDirectory

SIDE_BY_SIDE = 6  # runs with a column of their own; of more, each result is a line
SETTINGS = ("data", "scenario", "preset", "parties", "stages", "partition", "accounting", "holdout")


@dataclass(frozen=True)
class IndexedRun:
    """One run of an index."""

    name: str  # relative to the folder
    run: RunDirectory
    config: Mapping[str, Any]
    results: tuple[FinalResult, ...]
    meaning: Meaning
    view: str

    @staticmethod
    def read(folder: Path, path: Path) -> IndexedRun:
        """Read a run below a folder."""
        run = RunDirectory.read(path)
        config, metrics = run.read_config(), run.metrics()
        views = sorted({readable_view(view) for _, view in meanings(metrics) if view})
        return IndexedRun(
            path.relative_to(folder).as_posix(),
            run,
            config,
            tuple(final_results(frame(metrics))),
            meaning_of(config),
            " or ".join(views),
        )

    @property
    def tested(self) -> str:
        """The records that the classifiers of the run were tested on."""
        return evaluation_data(self.config).name

    @property
    def facts(self) -> dict[str, str]:
        """The conditions that the numbers of the run depend on, by keyword."""
        evaluation = self.config.get("evaluation") or {}
        found = {name: str(self.config.get(name, MISSING)) for name in SETTINGS}
        found["protocol"] = str(evaluation.get("protocol", MISSING))
        found["unit"] = self.meaning.unit or MISSING
        found["neighbours"] = RELATION_WORDS.get(self.meaning.relation, MISSING)
        found["δ"] = MISSING if self.meaning.delta is None else f"{self.meaning.delta:g}"
        found["view"] = self.view or MISSING
        return found


def runs_below(folder: Path) -> list[IndexedRun]:
    """All runs with numbers below a folder, by name.

    Raises:
        UserError: There are none.
    """
    found = sorted(path.parent for path in folder.rglob(CONFIG))
    runs = [IndexedRun.read(folder, path) for path in found if (path / METRICS).is_file()]
    if not runs:
        raise UserError(
            f"{folder} is no run and holds none with numbers: name a run directory, or a folder of "
            "runs (such as runs/)."
        )
    return runs


def index_sections(runs: Sequence[IndexedRun], prefix: str = "") -> list[Section]:
    """The sections of an index.

    Args:
        runs: The runs; the first is the one that others are compared with.
        prefix: The way from the page to the folder of the runs, empty or ending in a slash.
    """
    table = _side_by_side(runs) if len(runs) <= SIDE_BY_SIDE else _one_below_another(runs)
    return [
        Section("runs", "Runs side by side", {"table": table, "differences": differences(runs)}),
        Section("settings", "Settings of the runs", {"table": _settings(runs, prefix)}),
    ]


def differences(runs: Sequence[IndexedRun]) -> list[str]:
    """Sentences on what keeps the numbers of runs apart from those of the first one."""
    first, lines = runs[0], []
    for other in runs[1:]:
        theirs = other.facts
        parts = [
            f"{name} ({theirs[name]}, not {value})"
            for name, value in first.facts.items()
            if theirs[name] != value
        ]
        if parts:
            lines.append(f"{other.name} differs from {first.name} in {', '.join(parts)}.")
        lines += [f"{other.name}, {text}" for text in other_meanings(other.run, first.meaning)]
    return lines


def _side_by_side(runs: Sequence[IndexedRun]) -> Table:
    """A row per method and budget, a column per run."""
    own = [{(r.epsilon, r.method): r for r in run.results} for run in runs]
    rows = [
        Row(
            (
                method,
                epsilon_text(epsilon),
                *(_accuracy(one.get((epsilon, method))) for one in own),
            ),
            reference=math.isinf(epsilon),
        )
        for epsilon, method in sorted({key for one in own for key in one})
    ]
    columns = [Column("Method", "label"), Column("Budget ε"), *(Column(run.name) for run in runs)]
    return Table(_caption(runs, _named_by_run(runs)), columns, rows)


def _one_below_another(runs: Sequence[IndexedRun]) -> Table:
    """A row per run, method and budget, with what the run was tested on if that differs."""
    differ = len({run.tested for run in runs}) > 1
    rows = [
        Row(
            (
                run.name,
                result.method,
                epsilon_text(result.epsilon),
                _accuracy(result),
                *([run.tested] if differ else []),
            ),
            reference=not result.private,
        )
        for run in runs
        for result in run.results
    ]
    columns = [Column("Run", "label"), Column("Method", "label"), Column("Budget ε")]
    columns += [Column("Accuracy"), *([Column("Tested on", "text")] if differ else [])]
    tested = "the data named beside it" if differ else runs[0].tested
    return Table(_caption(runs, tested), columns, rows)


def _named_by_run(runs: Sequence[IndexedRun]) -> str:
    """The records that the runs were tested on, each with its runs where they differ."""
    names: dict[str, list[str]] = {}
    for run in runs:
        names.setdefault(run.tested, []).append(run.name)
    if len(names) == 1:
        return runs[0].tested
    return " or ".join(f"{tested} ({', '.join(found)})" for tested, found in names.items())


def _caption(runs: Sequence[IndexedRun], tested: str) -> str:
    text = f"Accuracy on {tested} after the last stage, mean over seeds, with the 95% interval"
    if len({tuple(run.facts.items()) for run in runs}) > 1:
        text += ". The runs differ in more than their results: see below"
    return text


def _accuracy(result: FinalResult | None) -> Cell | str:
    if result is None:
        return MISSING
    estimate = result.accuracy
    if estimate.low is None or estimate.high is None:
        return Cell(f"{estimate.mean:.3f}")
    return Cell(f"{estimate.mean:.3f}", f"{estimate.low:.3f}–{estimate.high:.3f}")


def _settings(runs: Sequence[IndexedRun], prefix: str) -> Table:
    """A row per setting and a column per run; of many runs, a row per run."""
    facts = [{**run.facts, **_extent(run)} for run in runs]
    caption = "What the numbers of a run depend on"
    if len(runs) <= SIDE_BY_SIDE:
        columns = [Column("Setting", "label"), *(Column(run.name, "text") for run in runs)]
        rows = [Row((name, *(one[name] for one in facts))) for name in facts[0]]
        rows.append(Row(("report", *(_link(run, "report", prefix) for run in runs))))
        return Table(caption, columns, rows)
    columns = [Column("Run", "label"), *(Column(name, "text") for name in facts[0])]
    rows = [
        Row((_link(run, run.name, prefix), *one.values()))
        for run, one in zip(runs, facts, strict=True)
    ]
    return Table(f"{caption}; a name leads to its report", columns, rows)


def _link(run: IndexedRun, text: str, prefix: str) -> Cell | str:
    """A text that leads to the report of a run, or no link where there is none yet."""
    if (run.run.path / REPORT).is_file():
        return Cell(text, link=f"{prefix}{run.name}/{REPORT}")
    return text if text == run.name else MISSING


def _extent(run: IndexedRun) -> dict[str, str]:
    """The methods and the number of seeds of a run."""
    methods = ", ".join(dict.fromkeys(result.method for result in run.results))
    seeds = max((result.accuracy.seeds for result in run.results), default=0)
    return {"methods": methods or MISSING, "seeds": str(seeds)}
