"""Tiny runs on the made-up data set: what the tests of the whole house share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsynth.cli.progress import Progress
from fedsynth.core.enums import DataKind
from fedsynth.core.types import Budget
from fedsynth.engine.base import Engine
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment import client_session
from fedsynth.experiment.job import Job
from fedsynth.experiment.runner import Runner
from fedsynth.experiment.scenario import ScenarioConfig, scenario_stages
from fedsynth.experiment.stage_extension import StageExtension
from fedsynth.methods.method import Method
from fedsynth.methods.registry import all_methods, method
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.ledger import read_entries, total
from fedsynth.storage.run_directory import RunDirectory

ROOT = Path(__file__).parents[2]

# Usual names of settings, and the values that make a run tiny. A method that needs another tiny
# setting names it in `presets["test"]`, which no command line can ask for.
SHRINK: Mapping[str, Any] = {
    "width": 4,
    "spc": 2,
    "runs": 2,
    "outer": 2,
    "inner": 1,
    "batches": 2,
    "updates": 1,
    "epochs": 2,
    "batch": 64,
    "group": 20,
    "iterations": 4,
    "steps": 4,
    "rounds": 4,
    "teachers": 6,
    "features": 16,
}

# 400 training records: two parties one after the other with five classes each, or three parties at
# once with a bit of everything. For methods that can, two parties with a table.
WORLDS = {
    "in_turn": ScenarioConfig(data="shapes", parties=2, holdout=1600),
    "together": ScenarioConfig(
        data="shapes", partition="iid", parties=3, stages="together", holdout=1600
    ),
    "table": ScenarioConfig(
        data="made_table", partition="iid", parties=2, stages="together", holdout=1600
    ),
}
KINDS = {"in_turn": DataKind.IMAGE, "together": DataKind.IMAGE, "table": DataKind.TABLE}
EVALUATION = {
    DataKind.IMAGE: EvaluationConfig(width=4, nets=1, max_images=50),
    DataKind.TABLE: EvaluationConfig(classifier="mlp", nets=1, max_images=50),
}


def worlds(name: str) -> list[str]:
    """The worlds whose kind of data a method can release."""
    return [world for world, kind in KINDS.items() if kind in method(name).kinds]


def tiny_settings(some: Method, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All settings of a method, shrunk by their names."""
    fields = {f.name: f.default for f in dataclasses.fields(some.Config)}
    shrunk = {name: SHRINK.get(name, default) for name, default in fields.items()}
    return {**shrunk, **some.presets.get("test", {}), **(changes or {})}


def tiny_job(
    name: str,
    out: Path,
    world: str = "in_turn",
    changes: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    noise_seed: int | None = 7,
    accounting: str = "rdp",
    plugins: tuple[str, ...] = (),
) -> Job:
    """A job small enough to run in a fraction of a second; Renyi accounting is the quick one."""
    some = method(name)
    epsilon = 10.0 if some.private else float("inf")
    return Job(
        name,
        tiny_settings(some, changes),
        Budget(epsilon, 1e-3, accounting=accounting),
        seed,
        WORLDS[world],
        EVALUATION[KINDS[world]],
        str(out),
        noise_seed,
        plugins=plugins,
    )


def variants(name: str) -> list[dict[str, Any]]:
    """The changes that try every choice of a method once, away from its default."""
    fields = dataclasses.fields(all_methods()[name].Config)
    return [
        {f.name: choice}
        for f in fields
        for choice in f.metadata.get("choices") or ()
        if choice != f.default
    ]


def release(job: Job, engine: Engine) -> None:
    """Make all releases of a job, as a process does that has just been started."""
    forget()
    RunDirectory.create(job.out) if not Path(job.out).exists() else None
    engine.run(job.text(), job.scenario.parties)


def release_and_judge(
    jobs: Sequence[Job], engine: Engine, extensions: Sequence[StageExtension] = ()
) -> RunDirectory:
    """Run jobs to their end, with evaluation and books."""
    forget()
    run = RunDirectory.create(jobs[0].out)
    with Progress(silent=True) as progress:
        Runner(run, engine, progress, extensions).execute(list(jobs), len(jobs))
    run.compact_metrics()
    return run


def released_sets(
    name: str, folder: Path, engine: Engine, changes: Mapping[str, Any], **scenario: Any
) -> tuple[Job, list[Any]]:
    """A tiny job and the outcomes of all its stages."""
    job = tiny_job(name, folder / "run", changes=changes)
    job = dataclasses.replace(job, scenario=dataclasses.replace(job.scenario, **scenario))
    release(job, engine)
    run, stages = RunDirectory(Path(job.out)), scenario_stages(job.scenario)
    return job, [run.load_release(job.name, stage + 1) for stage in range(len(stages))]


def forget() -> None:
    """Forget what a process keeps of its parties."""
    client_session.forget_parties()


def outputs(out: Path | str) -> dict[str, bytes]:
    """Everything that must not depend on engines, workers, crashes or the time of day."""
    out = Path(out)
    patterns = ("releases/**/*", "disclosed/**/*", "parties/**/ledger.jsonl", "ledger.jsonl")
    found = {
        str(path.relative_to(out)): path.read_bytes()
        for pattern in (*patterns, "metrics.csv")
        for path in out.glob(pattern)
        if path.is_file()
    }
    assert any(name.endswith(".npz") for name in found) or "metrics.csv" in found
    return found


def released_is_paid_for(job: Job) -> None:
    """Whatever is on disk as a release stands in the ledgers with all its cost."""
    run = RunDirectory(Path(job.out))
    for stage in range(len(scenario_stages(job.scenario))):
        if run.has_release(job.name, stage + 1):
            for share in job.plan(stage).parties:
                entries = read_entries(job.party_folder(share.party) / "ledger.jsonl")
                assert flatten(total(entries)) >= flatten(share.event)
