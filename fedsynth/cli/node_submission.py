"""Submits the jobs of a run to a SuperLink, waits for them, and says how they stand."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedsynth.api.launch import experiment_in, load_started_config
from fedsynth.cli.node_processes import running_nodes
from fedsynth.core.errors import JobsFailed, UserError
from fedsynth.core.text import markdown_table
from fedsynth.engine.app_bundle import write_app
from fedsynth.engine.flower_commands import RunState, SuperLink
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.job import Job
from fedsynth.experiment.node_folders import (
    PartyNode,
    ServerNode,
    make_node_folder,
    make_server_folder,
)
from fedsynth.experiment.node_run import (
    job_file,
    read_submissions,
    released,
    stages_released,
    write_submissions,
)
from fedsynth.experiment.node_states import read_failure, read_states
from fedsynth.experiment.proposal import proposal_text
from fedsynth.experiment.simulated_parties import PARTY_FILE, write_policies
from fedsynth.storage.run_directory import RunDirectory

PAUSE, LONG_PAUSE = 0.3, 5.0  # seconds between two looks for the end of a run
COLUMNS = ("job", "party", "state", "answers", "details")


def open_run(folder: Path) -> tuple[RunDirectory, tuple[Job, ...]]:
    """A run on real nodes with its jobs.

    Raises:
        UserError: There is no such run.
    """
    run = RunDirectory.read(folder)
    read_submissions(run)
    experiment: Experiment = experiment_in(load_started_config(folder, {}), folder)
    return run, experiment.jobs


def run_config(job: Path, proposal: str, parties: int, timeout: float) -> str:
    """The TOML of a run's configuration: the server's job file, and the proposal for parties."""
    entries = {"job": str(job.resolve()), "proposal": proposal}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in entries.items()]
    return "".join([*lines, f"parties = {parties}\ntimeout = {float(timeout)}\n"])


def proposal_of(job: Path) -> str:
    """The proposal of a job file.

    Raises:
        UserError: It is not a job.
    """
    return proposal_text(read_job(job))


def read_job(job: Path) -> Job:
    """The job in a file.

    Raises:
        UserError: It is not a job.
    """
    try:
        return Job.parse(job.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{job} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{job} is not a job: {type(error).__name__}: {error}.") from error


def submit_all(
    run: RunDirectory, jobs: Sequence[Job], superlink: SuperLink, timeout: float
) -> None:
    """Submit all jobs that are not released, and return at once."""
    with _bundle() as app:
        for job in _open_jobs(jobs):
            number = _submit(run, job, superlink, app, timeout)
            print(f"{job.name}: submitted as run {number} of {superlink.address}", flush=True)


def run_in_turn(
    run: RunDirectory, jobs: Sequence[Job], superlink: SuperLink, timeout: float
) -> None:
    """Submit the jobs that are not released, each when the one before has ended.

    Raises:
        JobsFailed: Some jobs ended without a release; the others are released.
    """
    with _bundle() as app:
        for job in _open_jobs(jobs):
            number = _submit(run, job, superlink, app, timeout)
            state = _await(superlink, number, job)
            print(_outcome(job, state), flush=True)
    _check_released(run, jobs)


def await_all(run: RunDirectory, jobs: Sequence[Job]) -> None:
    """Wait until the submitted jobs have ended.

    Raises:
        JobsFailed: Some jobs ended without a release.
    """
    for job in _open_jobs(jobs):
        superlink, number = _submitted(run, job)
        print(_outcome(job, _await(superlink, number, job)), flush=True)
    _check_released(run, jobs)


def status_lines(run: RunDirectory, jobs: Sequence[Job]) -> list[str]:
    """The state of each job, and a table of the parties."""
    lines, rows = [], []
    submissions = read_submissions(run)
    for job in jobs:
        lines.append(f"{job.name}: {_job_state(run, job, submitted=job.name in submissions)}")
        states = read_states(job)
        for party in range(job.scenario.parties):
            state = states.get(party)
            rows.append(
                [job.name, str(party), state.event, str(state.answers), state.details]
                if state
                else [job.name, str(party), "not heard of", "0", ""]
            )
    return [*lines, "", markdown_table(COLUMNS, rows)]


def rehearse(
    job: Path, parties: int, *, policies: Sequence[Path] = (), timeout: float = 600.0
) -> None:
    """Run a job file on nodes of this machine, to its end.

    Args:
        job: The server's job file.
        parties: The number of parties.
        policies: The `party.yaml` of each party; none: those of simulated parties.
        timeout: The seconds that a party may take per answer.

    Raises:
        UserError: The run did not complete.
    """
    parsed = read_job(job)
    if policies and len(policies) != parties:
        raise UserError(f"{len(policies)} policies for {parties} parties: give --policy once each.")
    if not policies:
        simulated = Path(write_policies(parsed))
        policies = [simulated / f"party-{party}" / PARTY_FILE for party in range(parties)]
    with tempfile.TemporaryDirectory(prefix="fedsynth-nodes-") as text:
        folder = Path(text)
        server = folder / "server"
        make_server_folder(server, ServerNode(insecure=True), ())
        folders = [folder / f"party-{party}" for party in range(parties)]
        for party, policy in enumerate(policies):
            node = PartyNode(party, parties, policy=str(policy.resolve()), insecure=True)
            make_node_folder(folders[party], node)
        config = folder / "run.toml"
        config.write_text(run_config(job, proposal_text(parsed), parties, timeout))
        with running_nodes(server, folders) as superlink, _bundle() as app:
            state = _await(superlink, superlink.submit(app, config), parsed)
    if not state.completed:
        raise UserError(f"the nodes ended with {state.status}: {state.details}")


@contextlib.contextmanager
def _bundle() -> Iterator[Path]:
    """The folder of the app bundle, for a moment."""
    with tempfile.TemporaryDirectory(prefix="fedsynth-app-") as text:
        write_app(Path(text))
        yield Path(text)


def _open_jobs(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if not released(job)]


def _submit(run: RunDirectory, job: Job, superlink: SuperLink, app: Path, timeout: float) -> int:
    config = job.server_folder() / "run.toml"
    text = run_config(job_file(job), proposal_text(job), job.scenario.parties, timeout)
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(text, encoding="utf-8")
    number = superlink.submit(app, config)
    where = {"address": superlink.address, "run": number, "home": str(superlink.home)}
    write_submissions(run, {**read_submissions(run), job.name: where})
    return number


def _submitted(run: RunDirectory, job: Job) -> tuple[SuperLink, int]:
    where = read_submissions(run)[job.name]
    return SuperLink.of_home(Path(where["home"]), where["address"]), int(where["run"])


def _await(superlink: SuperLink, number: int, job: Job) -> RunState:
    """Wait for the end of a run. The SuperLink is asked rarely, and at once when the job's folder
    shows its end: a question costs a new connection."""
    asked = 0.0
    while True:
        ended = released(job) or read_failure(job) != ""
        if time.monotonic() > asked + (PAUSE if ended else LONG_PAUSE):
            asked = time.monotonic()
            if (state := superlink.state(number)).finished:
                return state
        time.sleep(PAUSE)


def _outcome(job: Job, state: RunState) -> str:
    if released(job):
        return f"{job.name}: released"
    return f"{job.name}: {state.status}: {read_failure(job) or state.details}"


def _job_state(run: RunDirectory, job: Job, *, submitted: bool) -> str:
    """The state of a job in words."""
    if released(job):
        return "released"
    stages = f"{stages_released(job)} of {len(job.plans)} stages released"
    if not submitted:
        return f"{stages}; not submitted"
    try:
        superlink, number = _submitted(run, job)
        state = superlink.state(number)
        found = f"run {number} is {state.status}"
        failure = read_failure(job) if state.finished else ""
    except UserError as error:
        found, failure = str(error), read_failure(job)
    return f"{stages}; {found}{f': {failure}' if failure else ''}"


def _check_released(run: RunDirectory, jobs: Sequence[Job]) -> None:
    if left := _open_jobs(jobs):
        reasons = "; ".join(
            f"{job.name}: {read_failure(job).rstrip('.') or 'no reason'}" for job in left
        )
        raise JobsFailed(
            f"{len(left)} of {len(jobs)} jobs are not released: {reasons}. "
            f"`fedsynth nodes status {run.path}` says more; run it again to continue."
        )
