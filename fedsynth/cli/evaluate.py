"""Evaluate what was released by another protocol or other classifiers: no noise, no budget.

`fedsynth evaluate RUN` trains classifiers on the releases of a run and writes their results below
it; `fedsynth evaluate FILE.npz data=NAME` prints the results of one released file.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedsynth.core.errors import UserError, allowed, exit_code, nearest, unknown
from fedsynth.core.settings import build
from fedsynth.core.text import epsilon_text, markdown_table
from fedsynth.engine.flower_compat import quiet_flower
from fedsynth.evaluation.config import EvaluationConfig, merge_layers
from fedsynth.evaluation.continual import stage_rows
from fedsynth.experiment.config import ExperimentConfig, assemble, parse_overrides
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.flower_apps import open_job_engine
from fedsynth.experiment.reevaluation import Reevaluation, evaluate_file
from fedsynth.experiment.scenario_config import ScenarioConfig
from fedsynth.report.summary import frame
from fedsynth.storage.lock import in_use
from fedsynth.storage.metrics import MetricsFile
from fedsynth.storage.run_directory import RunDirectory

EVALUATION_KEYS = tuple(field.name for field in dataclasses.fields(EvaluationConfig))
WHICH = ("method", "epsilon", "seed")  # jobs of the run
ENGINE = ("engine", "workers", "num_cpus", "num_gpus", "address", "data_dir")
STAGES = ("last", "all")
DATA = ("data", "resize", "grey", "data_dir", "seed")  # keys of a released file
COLUMNS = ("method", "ε", "seed", "stage", "protocol and classifier", "accuracy")


def evaluation_words(words: Sequence[str]) -> list[str]:
    """Words in which `protocol=P` is written as `evaluation.protocol=P`, and so all such keys."""
    return [
        f"evaluation.{word}" if word.partition("=")[0] in EVALUATION_KEYS else word
        for word in words
    ]


def other_evaluation(run: RunDirectory, overrides: Mapping[str, Any]) -> ExperimentConfig:
    """The configuration of a run with another evaluation, and with some of its jobs only.

    A protocol that is named starts from its published settings; else the run's own evaluation is
    changed key by key.

    Raises:
        UserError: A key cannot be changed, or a method, epsilon or seed is not of the run.
    """
    known = ("evaluation", *WHICH, *ENGINE)
    for key in overrides:
        if key not in known:
            raise UserError(
                f"{key}= is not a key of an evaluation.{nearest(key, (*known, *EVALUATION_KEYS))} "
                + allowed((*EVALUATION_KEYS, *WHICH, *ENGINE), "fedsynth help evaluation")
            )
    values = run.read_config()
    about = str(values.pop("about", ""))
    for key in WHICH:
        given = overrides.get(key, [])
        for item in given if isinstance(given, list) else [given]:
            if item not in (of_run := values.get(key) or []):
                raise unknown(f"{key} of this run", item, of_run)
    section = overrides.get("evaluation") or {}
    if not isinstance(section, Mapping):
        raise UserError(f"evaluation={section!r}: write evaluation.KEY=VALUE, or KEY=VALUE.")
    if "protocol" in section:
        values["evaluation"] = {}
    return assemble([values, {**overrides, "out": str(run.path)}], None, about)


def evaluate_run(run: RunDirectory, overrides: Mapping[str, Any], stages: str) -> Path:
    """Evaluate the releases of a run; returns the metrics file of the results."""
    if stages not in STAGES:
        raise unknown("stages", stages, STAGES)
    config = other_evaluation(run, overrides)
    experiment = Experiment.of(config, run.path)
    settings = config.run
    quiet_flower()
    with (
        in_use(run.path),
        open_job_engine(
            settings.engine,
            workers=settings.workers,
            num_cpus=settings.num_cpus,
            num_gpus=settings.num_gpus,
            timeout=settings.timeout,
            address=settings.address,
        ) as engine,
    ):
        return Reevaluation(run, experiment, stages == "last").execute(engine)


def results_table(metrics: Path) -> str:
    """The accuracies of a metrics file as a Markdown table."""
    table = frame(MetricsFile(metrics).read())
    named = table[table["metric"].str.match(r"accuracy_([A-Z]|none)_")]
    return markdown_table(
        COLUMNS,
        [
            [
                f"`{row.method}`",
                epsilon_text(row.epsilon),
                str(row.seed),
                str(row.stage),
                row.metric.removeprefix("accuracy_").replace("_", ", ", 1),
                f"{row.value:.4f}",
            ]
            for row in named.itertuples()
        ],
    )


def evaluate_release(path: Path, overrides: Mapping[str, Any]) -> str:
    """Evaluate one released file; returns a Markdown table.

    Raises:
        UserError: A key is unknown, no data set is named, or the file does not fit it.
    """
    for key in overrides:
        if key not in ("evaluation", *DATA):
            raise UserError(
                f"{key}= is not a key for a released file.{nearest(key, (*DATA, *EVALUATION_KEYS))}"
                f" {allowed((*DATA, *EVALUATION_KEYS), 'fedsynth help evaluation')}"
            )
    if "data" not in overrides:
        raise UserError(f"{path} does not say what it imitates: name the data set with data=NAME.")
    values = {key: overrides[key] for key in DATA if key in overrides and key != "seed"}
    scenario = build(ScenarioConfig, {**values, "partition": "single", "parties": 1})
    section = merge_layers([dict(overrides.get("evaluation") or {})], None)
    evaluation = build(EvaluationConfig, section, "evaluation")
    seed = overrides.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise UserError(f"seed={seed!r} must be a whole number >= 0.")
    rows = stage_rows(evaluate_file(path, scenario, evaluation, seed), ())
    shown = pd.Series(rows)[lambda values: values.index.str.match(r"accuracy_([A-Z]|none)_")]
    return markdown_table(
        ("protocol and classifier", "accuracy"),
        [
            [name.removeprefix("accuracy_").replace("_", ", ", 1), f"{value:.4f}"]
            for name, value in shown.items()
        ],
    )


def _evaluate(words: Sequence[str]) -> None:
    place, *rest = words
    stages = [word.partition("=")[2] for word in rest if word.startswith("stages=")]
    rest = [word for word in rest if not word.startswith("stages=")]
    overrides = parse_overrides(evaluation_words(rest))
    if Path(place).is_file():
        print(evaluate_release(Path(place), overrides))
        return
    metrics = evaluate_run(RunDirectory.read(place), overrides, stages[-1] if stages else "last")
    print(results_table(metrics))
    print(f"\nnumbers: {metrics}")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; exit code 2 after an error of the user."""
    arguments = list(sys.argv[1:] if words is None else words)
    if not arguments or "=" in arguments[0] or arguments[0].startswith("-"):
        print(
            "error: name a run directory or a released file: "
            "fedsynth evaluate RUN|FILE.npz [KEY=VALUE ...]",
            file=sys.stderr,
        )
        return 2
    return exit_code(lambda: _evaluate(arguments))


if __name__ == "__main__":
    sys.exit(main())
