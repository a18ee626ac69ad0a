"""Tiny runs on toy data, shared by many tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsynth.api.progress import Progress
from fedsynth.core.enums import DataKind, Relation
from fedsynth.core.messages import Release, Request
from fedsynth.core.settings import choices_of, plain
from fedsynth.core.types import Budget
from fedsynth.engine.base import Engine
from fedsynth.engine.client_app import Node
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment import client_session
from fedsynth.experiment.job import Job
from fedsynth.experiment.proposal import proposal_text
from fedsynth.experiment.runner import Runner
from fedsynth.experiment.scenario import ScenarioConfig, scenario_stages
from fedsynth.experiment.simulated_parties import run_job, write_policies
from fedsynth.experiment.stage_extension import StageExtension
from fedsynth.experiment.tiny_settings import tiny_settings
from fedsynth.methods.registry import all_methods, method
from fedsynth.privacy.accounting.events import flatten
from fedsynth.privacy.ledger import read_entries, total
from fedsynth.storage.run_directory import RunDirectory

ROOT = Path(__file__).parents[2]

# Words of the command for a run of two parties.
TINY = [
    "data=shapes",
    "parties=2",
    "holdout=1600",
    "engine=inprocess",
    "noise_seed=3",
    "evaluation.width=4",
    "evaluation.nets=2",
    "evaluation.max_images=50",
    "ldpdc.spc=2",
    "dp_sgd.width=4",
    "delta=1e-3",
]

# 400 training records: two parties in turn with five classes each, three parties together with all
# classes each, and two parties together with a table.
SCENARIOS = {
    "in_turn": ScenarioConfig(data="shapes", parties=2, holdout=1600.0),
    "together": ScenarioConfig(
        data="shapes", partition="iid", parties=3, stages="together", holdout=1600.0
    ),
    "table": ScenarioConfig(
        data="made_table", partition="iid", parties=2, stages="together", holdout=1600.0
    ),
}
DATA_KINDS = {"in_turn": DataKind.IMAGE, "together": DataKind.IMAGE, "table": DataKind.TABLE}
EVALUATION = {
    DataKind.IMAGE: EvaluationConfig(width=4, nets=1, max_images=50),
    DataKind.TABLE: EvaluationConfig(classifier="mlp", nets=1, max_images=50),
}


STRATIFIED = {"assignment": "stratified"}  # a choice that bounds an exchange only


def scenarios_of(name: str) -> list[str]:
    """The scenarios with a kind of data that a method can release."""
    return [scenario for scenario, kind in DATA_KINDS.items() if kind in method(name).kinds]


def tiny_job(
    name: str,
    out: Path,
    scenario: str = "in_turn",
    changes: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    noise_seed: int | None = 7,
    accounting: str = "rdp",
    plugins: tuple[str, ...] = (),
) -> Job:
    """A job that runs in a fraction of a second; Renyi accounting is the fastest.

    Neighbours differ by a record more or less, unless a choice bounds exchanges only."""
    some, exchange = method(name), STRATIFIED.items() <= dict(changes or {}).items()
    relation = Relation.REPLACE_ONE if exchange else Relation.ADD_REMOVE
    epsilon = 10.0 if some.private else float("inf")
    return Job(
        name,
        tiny_settings(some, changes),
        Budget(epsilon, 1e-3, relation=relation, accounting=accounting),
        seed,
        SCENARIOS[scenario],
        EVALUATION[DATA_KINDS[scenario]],
        str(out),
        noise_seed,
        plugins=plugins,
    )


def variants(name: str) -> list[dict[str, Any]]:
    """One change of settings per choice of a method that its tiny form does not make."""
    tiny = tiny_settings(all_methods()[name])
    return [
        {key: choice}
        for key, choices in choices_of(all_methods()[name].Config).items()
        for choice in map(plain, choices)
        if choice != tiny[key]
    ]


def release(job: Job, engine: Engine) -> None:
    """Make all releases of a job, with nothing cached from earlier jobs."""
    forget()
    RunDirectory.create(job.out) if not Path(job.out).exists() else None
    run_job(engine, job)


def answer(job: Job, party: int, stage: int, request: Request) -> Release:
    """The answer of one simulated party in this process."""
    node = Node(party, f"{write_policies(job)}/party-{party}/party.yaml")
    return client_session.answer_request(proposal_text(job), node, stage, request)


def release_and_judge(
    jobs: Sequence[Job], engine: Engine, extensions: Sequence[StageExtension] = ()
) -> RunDirectory:
    """Run jobs to their end, with evaluation and metrics."""
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
    return job, [run.releases.load(job.name, stage + 1) for stage in range(len(stages))]


def forget() -> None:
    """Forget what this process caches of parties."""
    client_session.forget_parties()


def outputs(out: Path | str) -> dict[str, bytes]:
    """The files that must not depend on engines, workers, crashes or time, by path."""
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


def assert_releases_are_charged(job: Job) -> None:
    """The ledgers hold the whole cost of every release on disk."""
    run = RunDirectory(Path(job.out))
    for stage in range(len(scenario_stages(job.scenario))):
        if run.releases.exists(job.name, stage + 1):
            for share in job.plan(stage).parties:
                entries = read_entries(job.party_folder(share.party) / "ledger.jsonl")
                assert flatten(total(entries)) >= flatten(share.event)
