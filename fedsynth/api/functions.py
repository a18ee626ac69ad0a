"""The functions of the API: run, resume, plan, evaluate, load."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from fedsynth.api import launch
from fedsynth.api.evaluation import EVALUATION_KEYS, evaluate_release, evaluate_run
from fedsynth.api.keys import overrides_of, path_of, words_of
from fedsynth.api.locate import find_release
from fedsynth.api.released import ReleasedFile
from fedsynth.api.run_result import RunResult
from fedsynth.core.plan import SERVER_VIEW
from fedsynth.experiment.affordability import check_affordable
from fedsynth.experiment.config import resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.report.report_data import published_event
from fedsynth.report.summary import frame
from fedsynth.storage.metrics import MetricsFile
from fedsynth.storage.run_directory import CONFIG, RunDirectory


def run(scenario: str = "split_mnist", *, quiet: bool = True, **keys: Any) -> RunResult:
    """Run a scenario: release, evaluate, account, report.

    Args:
        scenario: The name of a scenario, or the path of its file.
        quiet: Display no progress.
        keys: The keys of the command line: `method="psg"`, `epsilon=[1, 10]`, `out="runs/a"`,
            `psg={"spc": 5}` or `**{"psg.spc": 5}`. `fedsynth help keys` explains all.

    Returns:
        The finished run. Cautions about it are given as Python warnings and in its report.

    Raises:
        UserError: A key or value is wrong, or the run cannot be done.
    """
    overrides = overrides_of({"scenario": scenario, **keys})
    config = resolve(overrides)
    done = launch.start(config, words_of(overrides), quiet=quiet, note=_warner())
    return RunResult(done.path)


def resume(path: str | Path, *, quiet: bool = True, **keys: Any) -> RunResult:
    """Continue an interrupted run; the result is that of an uninterrupted one.

    Args:
        path: The run directory.
        quiet: Display no progress.
        keys: Keys that change no result: `engine`, `workers` and the like.

    Raises:
        UserError: There is no run, or a key changes its results.
    """
    done = launch.resume(path_of(path, "path"), overrides_of(keys), quiet=quiet, note=_warner())
    return RunResult(done.path)


def _warner() -> Callable[[str], None]:
    """Give remarks as warnings, at the caller's line or near it."""
    return lambda text: warnings.warn(text, UserWarning, stacklevel=5)


def plan(scenario: str = "split_mnist", **keys: Any) -> pd.DataFrame:
    """The plan of a run: one row per method, budget, stage, party and view. Reads no records.

    Args:
        scenario: The name of a scenario, or the path of its file.
        keys: As for `run`.

    Returns:
        Records, sampling rate, steps, noise, the epsilons by three accountings, and bytes.

    Raises:
        UserError: A key or value is wrong, or the run cannot be planned.
    """
    experiment = Experiment.of(resolve(overrides_of({"scenario": scenario, **keys})))
    check_affordable(experiment)
    rows = []
    for job in experiment.first_seed_jobs:
        private = job.method_impl.private
        for each in job.plans:
            for share in each.parties:
                for view, event in (share.views or {SERVER_VIEW: share.event}).items():
                    rows.append(
                        {
                            "method": job.method,
                            "budget": job.budget.epsilon if private else float("inf"),
                            "delta": job.budget.delta,
                            "unit": str(job.budget.unit),
                            "relation": str(job.budget.relation),
                            "stage": each.stage.index + 1,
                            "party": share.party,
                            "records": share.records,
                            "sampling_rate": share.sampling_rate,
                            "steps": share.steps,
                            "noise_multiplier": share.noise_multiplier,
                            "view": view.description,
                            "epsilon_pld": job.epsilon(event, "pld"),
                            "epsilon_rdp": job.epsilon(event, "rdp"),
                            "epsilon_paper": job.paper_epsilon(published_event(share, view)),
                            "bytes_up": share.bytes_up,
                            "bytes_down": share.bytes_down,
                        }
                    )
    return pd.DataFrame(rows)


def evaluate(
    what: RunResult | ReleasedFile | str | Path, *, stages: str = "last", **keys: Any
) -> pd.DataFrame:
    """Train classifiers on what was released, by any protocol: no noise is drawn, no budget spent.

    Args:
        what: A run, a released file, or the path of either.
        stages: Of a run: `last` or `all`.
        keys: `protocol="D"`, `classifier="mlp"` and the other keys of `evaluation.`; for a run
            `method`, `epsilon`, `seed`, `engine`; for a file `data`, which is known where the file
            comes from `run.releases`.

    Returns:
        For a run a table like `run.metrics`; for a file the columns metric and value.

    Raises:
        UserError: A key is wrong, or there is nothing to evaluate.
    """
    some = what if isinstance(what, RunResult | ReleasedFile) else load(what)
    named = {f"evaluation.{k}" if k in EVALUATION_KEYS else k: v for k, v in keys.items()}
    overrides = overrides_of(named)
    if isinstance(some, RunResult):
        metrics = evaluate_run(RunDirectory.read(some.path), overrides, stages)
        return frame(MetricsFile(metrics).read())
    rows = evaluate_release(some.path, {**some.data, **overrides})
    return pd.DataFrame({"metric": list(rows), "value": list(rows.values())})


def load(path: str | Path) -> RunResult | ReleasedFile:
    """A run directory, a released file (`.npz`) or an exported folder as an object.

    Args:
        path: The path; of a folder of releases the last stage is loaded, and `RUN/NAME` is the
            release of that name in a run.

    Raises:
        UserError: There is no run and no release.
    """
    place = path_of(path, "path")
    return RunResult(place) if (place / CONFIG).is_file() else find_release(place)
