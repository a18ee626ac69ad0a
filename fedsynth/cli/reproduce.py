"""Reproduce printed tables: `fedsynth reproduce RECIPE [cells=RUN,RUN] [preset=published]`.

Each run of a recipe is a run of its own (`fedsynth run`, in a process of its own) below the folder
of runs; finished runs are read and interrupted ones resumed, so the same command continues after
an interruption. Several recipes may be run at the same time, each by a command of its own.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.cli.run import print_plan
from fedsynth.cli.study import exit_code_of, in_a_process
from fedsynth.core.errors import UserError, unknown
from fedsynth.core.plan import SERVER_VIEW
from fedsynth.core.text import markdown_table
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.report.paper_comparison.matching import Measured
from fedsynth.report.paper_comparison.table import measured_numbers
from fedsynth.report.reproduction.coverage import (
    read_results,
    recipe_coverage,
    results_of,
    table_folder,
    write_results,
)
from fedsynth.report.reproduction.page import write_coverage, write_table
from fedsynth.report.reproduction.recipes import (
    Preset,
    Recipe,
    RecipeRun,
    Status,
    all_recipes,
    recipe,
    recipe_names,
)
from fedsynth.storage.environment import git_commit
from fedsynth.storage.metrics import MetricsFile
from fedsynth.storage.run_directory import CONFIG, METRICS, RunDirectory

ENGINE_KEYS = ("engine", "workers")  # of the runs; no number depends on them
KEYS = ("cells", "preset", "out", "runs", *ENGINE_KEYS)
FLAGS = ("--list", "--plan", "--coverage")
_ROUNDING = 0.01  # of a printed epsilon or noise multiplier
USAGE = """\
Usage: fedsynth reproduce RECIPE [cells=RUN,RUN] [preset=published|reduced] [--plan]
       fedsynth reproduce --list
       fedsynth reproduce --coverage [out=results/papers]

Further keys: engine=ray|inprocess and workers=N, which say where the runs are computed.

Runs what stands beside the numbers of one printed table and writes its page below
out=results/papers (cells.csv, README.md); runs=runs/papers holds the runs. The same command
continues after an interruption. --plan prints the cost of every run, --list all recipes,
--coverage writes the page and the file coverage.csv of all printed numbers."""


@dataclass(frozen=True)
class Reproduction:
    """The runs of one recipe in one form, and where they and their results lie."""

    recipe: Recipe
    preset: Preset
    out: Path
    runs: Path
    engine: tuple[str, ...] = ()  # words that say where runs are computed

    def directory(self, run: RecipeRun) -> Path:
        """The run directory of a run."""
        return self.runs / self.recipe.name / str(self.preset) / run.name

    def execute(
        self, chosen: Sequence[RecipeRun], start: Callable[[Sequence[str]], int]
    ) -> list[str]:
        """Make runs and evaluations in turn; results are written after each.

        Args:
            chosen: The runs.
            start: Runs `fedsynth` with these words and returns its exit code.

        Returns:
            The names of the runs that failed.
        """
        failed = []
        for run in chosen:
            print(f"{self.recipe.name}: {run.name} ({self.preset})", flush=True)
            if self._make(run, start):
                self._collect(run)
            else:
                failed.append(run.name)
            write_table(self.out, self.recipe)
        return failed

    def _make(self, run: RecipeRun, start: Callable[[Sequence[str]], int]) -> bool:
        if run.plan_only:
            return True
        if run.of:
            base, other = self._base(run)
            if not RunDirectory(base.directory(other)).finished and not base._make(other, start):
                return False
            words = ["evaluate", str(base.directory(other)), *run.words_of(self.preset)]
            return start([*words, *self.engine]) == 0
        directory = self.directory(run)
        if RunDirectory(directory).finished:
            return True
        if (directory / CONFIG).is_file():
            return start(["run", "--resume", str(directory), *self.engine, "--quiet"]) == 0
        words = [*run.words_of(self.preset), *self.engine, f"out={directory}", "--quiet"]
        return start(["run", *words]) == 0

    def _base(self, run: RecipeRun) -> tuple[Reproduction, RecipeRun]:
        """The run that an evaluation reads: in its reduced form if that is wanted and exists."""
        base, read = self.recipe.base(run)
        preset = self.preset if read.reduced else Preset.PUBLISHED
        return dataclasses.replace(self, recipe=base, preset=preset), read

    def _collect(self, run: RecipeRun) -> None:
        """Write the numbers of a run beside the printed ones."""
        if run.plan_only:
            words = run.words_of(self.preset)
            command = f"fedsynth run {shlex.join(words)} --plan"
            self._write(
                run, planned_epsilons(words), {"command": command, "commit": _short(git_commit())}
            )
            return
        printed_epsilon = run.printed_epsilon
        if run.of:
            base, other = self._base(run)
            printed_epsilon = printed_epsilon or other.printed_epsilon
            source = RunDirectory.read(base.directory(other))
            words = run.words_of(self.preset)
            numbers = _evaluated(source, words)
            forms = (base.preset, other.why), (self.preset, run.why)
            why = "; ".join(text for form, text in forms if form == Preset.REDUCED and text)
            numbers = [dataclasses.replace(each, spc=_images(run) or each.spc) for each in numbers]
            command = f"fedsynth evaluate {run.of} {shlex.join(words)}"
        else:
            source, why = RunDirectory.read(self.directory(run)), run.why
            numbers = measured_numbers(source.metrics(), source.read_config())
            numbers = [dataclasses.replace(each, spc=_images(run) or each.spc) for each in numbers]
            command = "fedsynth run " + shlex.join(run.words_of(self.preset))
        counted = _epsilons(source)
        if printed_epsilon is not None:
            _check_count(run.name, printed_epsilon, counted)
            numbers = [dataclasses.replace(each, epsilon=printed_epsilon) for each in numbers]
        if run.printed_classifier:
            named = run.printed_classifier
            numbers = [dataclasses.replace(each, classifier=named) for each in numbers]
        numbers += counted
        config, environment = source.read_config(), source.read_environment()
        facts: Mapping[str, Any] = {
            "draws": len(config.get("seed") or [0]),
            "command": command,
            "commit": _short(environment.get("git")),
            "seconds": sum(
                row.value for row in source.metrics() if row.metric.startswith("seconds")
            ),
        }
        self._write(dataclasses.replace(run, why=why), numbers, facts)

    def _write(self, run: RecipeRun, numbers: list[Measured], facts: Mapping[str, Any]) -> None:
        known = {"draws": 1, "seconds": 0.0, **facts}
        results = results_of(self.recipe, run, self.preset, numbers, known)
        if not results:
            raise UserError(
                f"{self.recipe.name}: run {run.name} yielded none of the cells it names."
            )
        write_results(table_folder(self.out, self.recipe), results)


def _short(git: Mapping[str, Any] | None) -> str:
    return str((git or {}).get("commit", ""))[:10]


def planned_epsilons(words: Sequence[str]) -> list[Measured]:
    """Every job's epsilon by the convention of its paper, without running it."""
    from fedsynth.experiment.experiment import Experiment
    from fedsynth.report.report_data import published_event

    return [
        _epsilon(
            job.method, job.budget.epsilon, job.paper_epsilon(published_event(share, SERVER_VIEW))
        )
        for job in Experiment.of(resolve(parse_overrides(words))).first_seed_jobs
        for plan in job.plans
        for share in plan.parties
    ]


def _epsilons(run: RunDirectory) -> list[Measured]:
    """Every job's epsilon by the convention of its paper, as papers print it."""
    return [
        _epsilon(row.method, row.epsilon, row.value)
        for row in run.metrics()
        if row.metric == "epsilon_paper"
    ]


def _epsilon(method: str, budget: float, counted: float) -> Measured:
    return Measured("", method, budget, "", "", "none", "epsilon", counted)


def _check_count(name: str, printed: float, counted: Sequence[Measured]) -> None:
    """Refuse numbers of a run that cost more, by the paper's count, than the printed epsilon."""
    most = max((each.value for each in counted), default=math.inf)
    if not most <= printed * (1 + _ROUNDING):
        raise UserError(
            f"run {name}: by the paper's count it costs epsilon {most:g}, more than the printed "
            f"{printed:g}."
        )


def _images(run: RecipeRun) -> float | None:
    """The images per class that an evaluation is limited to."""
    for word in (*run.words, *run.evaluate):
        key, _, value = word.partition("=")
        if key.removeprefix("evaluation.") == "images_per_class":
            return float(value)
    return None


def _evaluated(run: RunDirectory, words: Sequence[str]) -> list[Measured]:
    """The numbers of a later evaluation of a run."""
    from fedsynth.api.evaluation import other_evaluation
    from fedsynth.cli.evaluate import evaluation_words
    from fedsynth.experiment.experiment import Experiment
    from fedsynth.experiment.reevaluation import Reevaluation

    config = other_evaluation(run, parse_overrides(evaluation_words(words)))
    folder = Reevaluation(run, Experiment.of(config, run.path)).folder
    return measured_numbers(MetricsFile(folder / METRICS).read(), config.as_dict())


def listing(out: Path) -> str:
    """All recipes, with how much of each is done."""
    rows = []
    for each in all_recipes():
        cells = recipe_coverage(each, read_results(table_folder(out, each)))
        done = sum(cell.status in (Status.PUBLISHED, Status.REDUCED) for cell in cells)
        rows.append(
            (
                each.name,
                each.rows[0].place,
                each.title,
                str(len(each.runs)),
                f"{done} of {len(cells)}",
            )
        )
    return markdown_table(("recipe", "table", "about", "runs", "cells done"), rows)


def _start(words: Sequence[str]) -> int:
    """One command in a process of its own, whose time is printed."""
    begin = time.monotonic()
    code = in_a_process(words, module="fedsynth")
    print(f"  exit code {code} after {time.monotonic() - begin:,.0f} s", flush=True)
    return code


def _sorted(words: Sequence[str]) -> tuple[list[str], dict[str, str], set[str]]:
    """Names, keys with values, and options of a command line.

    Raises:
        UserError: A key or an option is unknown.
    """
    flags = {word for word in words if word.startswith("-")}
    names = [word for word in words if "=" not in word and not word.startswith("-")]
    values = dict(word.split("=", 1) for word in words if "=" in word)
    for flag in flags - set(FLAGS):
        raise unknown("option", flag, FLAGS)
    for key, value in values.items():
        if key not in KEYS:
            raise unknown("key", key, KEYS)
        if not value:
            raise UserError(f"{key}= is empty: give a value, or leave the key out.")
    return names, values, flags


def _chosen(
    names: Sequence[str], values: Mapping[str, str]
) -> tuple[Reproduction, list[RecipeRun]]:
    """The recipe that is named, in its form, and the runs that are chosen of it."""
    if len(names) != 1:
        raise UserError(f"name one recipe: {', '.join(recipe_names())}.")
    preset = values.get("preset", str(Preset.PUBLISHED))
    if preset not in tuple(Preset):
        raise unknown("preset", preset, tuple(Preset))
    named = recipe(names[0])
    runs = list(named.runs)
    if values.get("cells"):
        runs = [named.run(name) for name in values["cells"].split(",")]
    if preset == Preset.REDUCED:
        without = [run.name for run in runs if not named.has_reduced_form(run)]
        if without and (values.get("cells") or len(without) == len(runs)):
            raise UserError(
                f"preset=reduced: no reduced form in {named.name}: {', '.join(without)}. "
                "preset=published runs as published, and --plan says what that costs."
            )
        runs = [run for run in runs if run.name not in without]
    out, folder = values.get("out") or "results/papers", values.get("runs") or "runs/papers"
    engine = tuple(f"{key}={values[key]}" for key in ENGINE_KEYS if key in values)
    return Reproduction(named, Preset(preset), Path(out), Path(folder), engine), runs


def _print_plans(work: Reproduction, runs: Sequence[RecipeRun]) -> None:
    for run in runs:
        if run.words:
            words = run.words_of(work.preset)
            print(f"{run.name}: fedsynth run {shlex.join(words)}")
            print_plan(resolve(parse_overrides(words)))
        else:
            words = run.words_of(work.preset)
            print(f"{run.name}: fedsynth evaluate {run.of} {shlex.join(words)}")


def _reproduce(words: Sequence[str]) -> int:
    names, values, flags = _sorted(words)
    out = Path(values.get("out") or "results/papers")
    if "--list" in flags:
        print(listing(out))
        return 0
    if "--coverage" in flags:
        for each in all_recipes():
            write_table(out, each)
        print(write_coverage(out))
        return 0
    work, runs = _chosen(names, values)
    if "--plan" in flags:
        _print_plans(work, runs)
        return 0
    failed = work.execute(runs, _start)
    write_coverage(out)
    print(f"page: {table_folder(out, work.recipe) / 'README.md'}")
    if failed:
        raise UserError(f"these runs failed: {', '.join(failed)}; the same command continues.")
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; exit code 2 after an error of the user."""
    return exit_code_of(words, USAGE, _reproduce)


if __name__ == "__main__":
    sys.exit(main())
