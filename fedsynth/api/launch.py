"""Starts and resumes a run: directory, engine, jobs, report and seal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedsynth.api.progress import Progress
from fedsynth.core.enums import EngineName
from fedsynth.core.errors import JobsFailed, UserError, nearest
from fedsynth.data.formats.npz import PREFIX
from fedsynth.engine.base import Engine
from fedsynth.engine.flower_compat import quiet_flower
from fedsynth.engine.process_setup import pin_threads
from fedsynth.experiment.affordability import check_affordable
from fedsynth.experiment.config import ExperimentConfig, assemble, with_plugins
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.flower_apps import open_job_engine
from fedsynth.experiment.node_run import ReleasedEngine, prepare
from fedsynth.experiment.run_config import continued
from fedsynth.experiment.run_device import require_device
from fedsynth.experiment.run_seal import seal_run
from fedsynth.experiment.runner import Runner
from fedsynth.experiment.scenario import ensure_data, missing_data
from fedsynth.experiment.scenario_config import ScenarioConfig
from fedsynth.experiment.server_session import dropout_notes
from fedsynth.experiment.stage_extension import load_extensions
from fedsynth.experiment.trackers import open_trackers
from fedsynth.experiment.warnings import warnings
from fedsynth.report.page import write_report
from fedsynth.report.report_data import build_report_data
from fedsynth.storage.lock import in_use
from fedsynth.storage.run_directory import NODES, PARTIES, RunDirectory

# These change no result. A plug-in may have moved; its content is part of a job's identity.
RESUMABLE = (
    "engine",
    "workers",
    "num_cpus",
    "address",
    "timeout",
    "tracker",
    "ray_tools",
    "secure_sum",
    "data_dir",
    "plugin",
)

Note = Callable[[str], None]  # takes a remark for the user


def start(
    config: ExperimentConfig, arguments: Sequence[str], *, quiet: bool, note: Note
) -> RunDirectory:
    """Start a new run.

    Args:
        config: The whole run.
        arguments: The words of an equal command line, for the report.
        quiet: Display no progress.
        note: Receives remarks, one by one.

    Returns:
        The finished run.

    Raises:
        UserError: The run cannot be planned, started or finished.
    """
    config = _with_folder(config)
    folder = Path(str(config.run.out))
    experiment = experiment_in(config, folder)
    check_affordable(experiment)
    _check_data(config)  # before anything is written
    run = RunDirectory.create(folder)
    with in_use(folder):
        run.write_config(config.as_dict())
        run.write_environment(arguments)
        _execute(experiment, run, quiet, note)
    return run


def propose(
    config: ExperimentConfig, arguments: Sequence[str], *, note: Note
) -> tuple[RunDirectory, Experiment]:
    """Start a new run on real nodes: its directory with a job and a proposal each, and no release.

    Args:
        config: The whole run.
        arguments: The words of an equal command line, for the report.
        note: Receives remarks, one by one.

    Raises:
        UserError: The run cannot be planned, or the directory is in use.
    """
    config = _with_folder(config)
    folder = Path(str(config.run.out))
    experiment = experiment_in(config, folder)
    check_affordable(experiment)
    for text in warnings(experiment):
        note(text)
    run = RunDirectory.create(folder)
    run.write_config(config.as_dict())
    run.write_environment(arguments)
    prepare(experiment, run)
    return run, experiment


def resume(folder: Path, overrides: Mapping[str, Any], *, quiet: bool, note: Note) -> RunDirectory:
    """Continue the run in `folder`. Only keys that change no result may be given.

    Args:
        folder: The run directory.
        overrides: Keys and values.
        quiet: Display no progress.
        note: Receives remarks, one by one.

    Returns:
        The finished run.

    Raises:
        UserError: There is no run, a key changes results, or the run cannot be finished.
    """
    config = load_started_config(folder, overrides)
    with in_use(folder):
        run = RunDirectory.open(folder)
        _check_data(config)
        experiment = experiment_in(config, folder)
        _execute(experiment, run, quiet, note)
    return run


def load_started_config(folder: Path, overrides: Mapping[str, Any]) -> ExperimentConfig:
    """The configuration of the run in `folder`, with these keys, which change no result."""
    for key in overrides:
        if key not in RESUMABLE:
            raise UserError(
                f"{key}= cannot be changed on --resume, the run goes on as it was started."
                f"{nearest(key, RESUMABLE)} Allowed: {', '.join(RESUMABLE)}."
            )
    overrides = with_plugins(overrides)
    values = _from_its_start(RunDirectory.read(folder).read_config(), folder)
    about = str(values.pop("about", ""))
    values = continued(values, overrides)
    return assemble([values, {**overrides, "out": str(folder)}], None, about)


def _from_its_start(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The values of a run with paths that are also valid in another directory than its start's.

    A relative `out` ends the path of the run, so what is before it is where the run was started."""
    ours, out = folder.absolute().parts, Path(str(values.get("out") or folder)).parts
    if ".." in ours + out or ours[-len(out) :] != out or len(out) == len(ours):
        return values
    start = Path(*ours[: -len(out)])
    found = dict(values)
    for key, prefix in (("data", PREFIX), ("data_dir", "")):
        value = str(values.get(key) or "")
        path = value.removeprefix(prefix)
        if value.startswith(prefix) and path and (start / path).exists():
            found[key] = f"{prefix}{start / path}"
    return found


def _with_folder(config: ExperimentConfig) -> ExperimentConfig:
    """The configuration with the run's folder; where that is not below the working directory, it
    cannot tell later where the run was started, so that a relative path of data is replaced."""
    folder = Path(config.run.out) if config.run.out else _fresh_folder(config)
    scenario = config.scenario
    if folder.is_absolute() or ".." in folder.parts:
        data, data_dir = _absolute_paths(scenario)
        scenario = dataclasses.replace(scenario, data=data, data_dir=data_dir)
    run = dataclasses.replace(config.run, out=str(folder))
    return dataclasses.replace(config, run=run, scenario=scenario)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread per operation, as every engine does, and restore the count after.

    Thread counts change the bits of results; a caller's own process keeps its own count."""
    before = torch.get_num_threads()
    pin_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def open_run_engine(
    experiment: Experiment, run: RunDirectory, note: Note = lambda _text: None
) -> AbstractContextManager[Engine]:
    """The engine that the settings of a run name, on the device that they name.

    Args:
        experiment: The run.
        run: Its directory.
        note: Receives remarks on the nodes of a cluster.
    """
    settings = experiment.config.run
    require_device(settings)
    return open_job_engine(
        settings.engine,
        workers=settings.workers,
        num_cpus=settings.num_cpus,
        num_gpus=settings.num_gpus,
        timeout=settings.timeout,
        address=settings.address,
        storage=run.path / PARTIES,
        tools=settings.ray_tools,
        folder=run.path,
        fit=partial(missing_data, experiment.jobs[0].scenario, settings.plugin),
        note=note,
    )


def experiment_in(config: ExperimentConfig, folder: Path) -> Experiment:
    """The jobs of a run, with absolute paths: workers have working directories of their own."""
    data, folders = _absolute_paths(config.scenario)
    scenario = dataclasses.replace(config.scenario, data=data, data_dir=folders)
    absolute = dataclasses.replace(config, scenario=scenario)
    return dataclasses.replace(Experiment.of(absolute, folder.absolute()), config=config)


def _absolute_paths(scenario: ScenarioConfig) -> tuple[str, str | None]:
    """The data and the folder of data sets, as absolute paths where they are paths."""
    data, folders = scenario.data, scenario.data_dir
    if data.startswith(PREFIX):
        data = f"{PREFIX}{Path(data.removeprefix(PREFIX)).expanduser().absolute()}"
    if folders is not None:
        folders = str(Path(folders).expanduser().absolute())
    return data, folders


def _check_data(config: ExperimentConfig) -> None:
    """Fetch or find the data; on a cluster it is enough that some node has them."""
    if config.run.address is None:
        ensure_data(config.scenario)


def _fresh_folder(config: ExperimentConfig) -> Path:
    stem = f"{Path(config.run.scenario).stem}-{config.run.preset}"
    number = 1
    while (folder := Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return folder


def _execute(experiment: Experiment, run: RunDirectory, quiet: bool, note: Note) -> None:
    notes = warnings(experiment)
    for text in notes:
        note(text)
    jobs, settings = experiment.jobs, experiment.config.run
    quiet_flower()
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        progress = Progress(silent=quiet)

        def remark(text: str) -> None:
            run.log(text)
            progress.message(text)

        try:
            engine = stack.enter_context(open_run_engine(experiment, run, remark))
            if (run.path / NODES).is_file():
                engine = ReleasedEngine(engine)
        except UserError:
            run.roll_back()
            raise
        except KeyboardInterrupt:
            note(f"go on with --resume {run.path}")
            raise
        stack.enter_context(progress)
        run.log(f"{len(jobs)} jobs on engine {settings.engine}")
        progress.message(f"run directory {run.path}")
        at_once = 1 if settings.engine == EngineName.FLOWER else min(len(jobs), 4 * engine.workers)
        try:
            extensions = load_extensions(settings.extensions)
            trackers = stack.enter_context(open_trackers(settings.tracker, run.path))
            runner = Runner(run, engine, progress, extensions, trackers)
            runner.execute(jobs, at_once)
        except (UserError, KeyboardInterrupt):
            note(f"what is done is kept; go on with --resume {run.path}")
            raise
    command = str(run.read_environment().get("command", ""))
    failures = [f"{name} failed: {reason}" for name, reason in runner.failed.items()]
    left = [
        *failures,
        *runner.notes,
        *(text for job in jobs for text in dropout_notes(job)),
    ]
    for text in left:
        note(text)
    write_report(run, build_report_data(experiment, command, [*notes, *left]))
    seal_run(run, settings.noise_seed)
    if failures:
        raise JobsFailed(
            f"{len(failures)} of {len(jobs)} jobs failed: {', '.join(runner.failed)}. The others "
            f"are in the report; --resume {run.path} takes up what failed."
        )
