"""Evaluation of what was released by another protocol or other classifiers, for any caller."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsynth.api.launch import experiment_in, one_thread, open_run_engine
from fedsynth.core.errors import UserError, allowed, nearest, unknown
from fedsynth.core.settings import build
from fedsynth.engine.flower_compat import quiet_flower
from fedsynth.evaluation.config import EvaluationConfig, merge_layers
from fedsynth.evaluation.continual import stage_rows
from fedsynth.experiment.config import ExperimentConfig, assemble
from fedsynth.experiment.intermediate_sets import evaluate_intermediate_sets
from fedsynth.experiment.real_records import measure_real_records
from fedsynth.experiment.reevaluation import Reevaluation, evaluate_file
from fedsynth.experiment.run_config import continued
from fedsynth.experiment.scenario_config import ScenarioConfig
from fedsynth.storage.lock import in_use
from fedsynth.storage.run_directory import RunDirectory

EVALUATION_KEYS = tuple(field.name for field in dataclasses.fields(EvaluationConfig))
WHICH = ("method", "epsilon", "seed")  # jobs of the run
ENGINE = ("engine", "workers", "num_cpus", "num_gpus", "device", "address", "data_dir")
STAGES = ("last", "all")
SETS = ("final", "intermediate")
DATA = ("data", "resize", "grey", "data_dir", "seed")  # keys of a released file


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
    values = continued(run.read_config(), overrides)
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


def evaluate_run(
    run: RunDirectory, overrides: Mapping[str, Any], stages: str = "last", sets: str = "final"
) -> Path:
    """Evaluate the releases of a run.

    Args:
        run: The run.
        overrides: Keys of the evaluation and of the engine.
        stages: The `last` released stage of each job, or `all`.
        sets: The `final` sets, or also the `intermediate` ones that were released beside them.

    Returns:
        The metrics file of the results, or for intermediate sets their CSV file.

    Raises:
        UserError: A key is unknown, or the run holds nothing of the kind.
    """
    if stages not in STAGES:
        raise unknown("stages", stages, STAGES)
    if sets not in SETS:
        raise unknown("sets", sets, SETS)
    config = other_evaluation(run, overrides)
    experiment = experiment_in(config, run.path)
    quiet_flower()
    with (
        in_use(run.path),
        one_thread(),
        open_run_engine(experiment, run) as engine,
    ):
        reevaluation = Reevaluation(run, experiment, stages == "last")
        if sets == "intermediate":
            return evaluate_intermediate_sets(reevaluation, engine)
        return reevaluation.execute(engine)


def evaluate_real_records(
    run: RunDirectory, counts: Sequence[int], overrides: Mapping[str, Any]
) -> Path:
    """Measure what classifiers reach with some of the real records, by the evaluation of the run.

    Args:
        run: The run.
        counts: The numbers of records.
        overrides: Keys of the engine.

    Returns:
        The metrics file of the results, by which the report says what releases are worth.

    Raises:
        UserError: A key is not one of the engine, or a number of records is impossible.
    """
    for key in overrides:
        if key not in ENGINE:
            raise UserError(
                f"{key}= cannot be given with real=, which follows the evaluation of the run."
                f"{nearest(key, ENGINE)} {allowed(ENGINE, 'fedsynth help run')}"
            )
    experiment = experiment_in(other_evaluation(run, overrides), run.path)
    quiet_flower()
    with in_use(run.path), one_thread(), open_run_engine(experiment, run) as engine:
        return measure_real_records(run, experiment, counts, engine)


def evaluate_release(path: Path, overrides: Mapping[str, Any]) -> dict[str, float]:
    """Evaluate one released file; returns its metrics by name.

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
    return dict(stage_rows(evaluate_file(path, scenario, evaluation, seed), ()))
