"""A run on real nodes: the run directory with its proposals, and the engine behind its report.

The run directory lies at the server. `prepare` writes it with a job and a proposal per method,
budget and seed. The ServerApp writes the releases and certificates into it. The report is that of
any run: `ReleasedEngine` stands for parties whose releases are there.
"""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedsynth.core.errors import UserError
from fedsynth.engine.base import Engine, NodeSetup
from fedsynth.engine.server_app import StageCallback
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.job import Job
from fedsynth.experiment.node_states import read_failure
from fedsynth.experiment.party_extracts import on_nodes
from fedsynth.experiment.proposal import proposal_text
from fedsynth.storage.files import write_file
from fedsynth.storage.run_directory import NODES, RunDirectory

PROPOSALS = "proposals"
JOB_FILE = "job.json"


def prepare(experiment: Experiment, run: RunDirectory) -> list[Path]:
    """Write the jobs and proposals of a new run; returns the proposals.

    Args:
        experiment: The jobs of the run, with absolute paths.
        run: Its directory.
    """
    proposals = []
    for job in experiment.jobs:
        write_file(job_file(job), job.text().encode())
        proposals.append(run.write_text(f"{PROPOSALS}/{job.name}.json", proposal_text(job)))
    write_submissions(run, {})
    return proposals


def job_file(job: Job) -> Path:
    """The file with a job's text, which the ServerApp reads."""
    return job.server_folder() / JOB_FILE


def released(job: Job) -> bool:
    """True if all stages of a job are released and certified."""
    releases = RunDirectory(Path(job.out)).releases
    return all(
        releases.exists(job.name, stage) and releases.certificate(job.name, stage).is_file()
        for stage in range(1, len(job.plans) + 1)
    )


def stages_released(job: Job) -> int:
    """The number of stages of a job that are released."""
    releases = RunDirectory(Path(job.out)).releases
    return sum(releases.exists(job.name, stage + 1) for stage in range(len(job.plans)))


def read_submissions(run: RunDirectory) -> dict[str, Any]:
    """The last submission per job: the SuperLink's address and the number of the run there.

    Raises:
        UserError: This is no run on real nodes.
    """
    path = run.path / NODES
    if not path.is_file():
        raise UserError(
            f"{run.path} is no run on real nodes: `fedsynth nodes proposal SCENARIO ... "
            "out=FOLDER` starts one."
        )
    return dict(json.loads(path.read_text(encoding="utf-8"))["submissions"])


def write_submissions(run: RunDirectory, submissions: dict[str, Any]) -> None:
    """Store the submissions; see `read_submissions`."""
    run.write_text(NODES, json.dumps({"submissions": submissions}, indent=1) + "\n")


class ReleasedEngine(Engine):
    """An engine for the report of a run whose parties answered on nodes of their own.

    It asks no party of the run. What evaluates is the engine inside.
    """

    def __init__(self, inside: Engine) -> None:
        self._inside = inside
        self.workers = inside.workers

    def _run(self, job: str, nodes: NodeSetup, sticky: bool, on_stage: StageCallback) -> None:
        parsed = Job.parse(job)
        if not on_nodes(parsed):  # a simulation that an evaluation of the run makes
            self._inside._run(job, nodes, sticky, on_stage)
            return
        if not released(parsed):
            reason = read_failure(parsed)
            done, stages = stages_released(parsed), len(parsed.plans)
            raise UserError(
                f"{done} of {stages} stages are released"
                + (f"; the nodes ended with: {reason}" if reason else "")
                + f". `fedsynth nodes status {parsed.out}` has the state of the nodes, "
                "`fedsynth nodes run` continues."
            )
        store = RunDirectory(Path(parsed.out)).releases
        for stage in range(len(parsed.plans)):
            on_stage(stage, store.load(parsed.name, stage + 1))

    def submit(
        self, function: Callable[..., Any], *arguments: Any
    ) -> concurrent.futures.Future[Any]:
        """See `Engine.submit`."""
        return self._inside.submit(function, *arguments)

    @property
    def one_disk(self) -> bool:
        """See `Engine.one_disk`: of the workers that evaluate."""
        return self._inside.one_disk

    def visit_parties(
        self, policies: str, function: Callable[[str], Any], parties: Sequence[int] | None = None
    ) -> dict[int, Any]:
        """See `Engine.visit_parties`: no party lies on a disk that the server sees."""
        return {}

    def close(self) -> None:
        """See `Engine.close`; the engine inside is closed by its own block."""
