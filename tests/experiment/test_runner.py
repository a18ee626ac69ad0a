"""The runner: results by notification, one reading of the disk, files of earlier versions."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import tiny_runs as tiny

from fedsynth.core.errors import UserError
from fedsynth.engine.base import Engine, NodeSetup
from fedsynth.engine.server_app import StageCallback
from fedsynth.experiment import runner as module
from fedsynth.experiment.job import Job
from fedsynth.storage.run_directory import FAILED, SERVER, RunDirectory


class SlowEngine(Engine):
    """Waits before it runs a job, and computes evaluations in threads of their own."""

    workers = 1

    def __init__(self, engine: Engine, seconds: float) -> None:
        self._engine, self._seconds = engine, seconds
        self.submitted = 0

    def _run(self, job: str, nodes: NodeSetup, sticky: bool, on_stage: StageCallback) -> None:
        time.sleep(self._seconds)
        self._engine._run(job, nodes, sticky, on_stage)

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        self.submitted += 1
        future: Future[Any] = Future()

        def compute() -> None:
            future.set_result(self._engine.submit(function, *arguments).result())

        threading.Thread(target=compute).start()
        return future

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The files that the thread of the runner looks up."""
    paths: list[str] = []
    runner = threading.get_ident()
    for name in ("stat", "scandir", "listdir"):
        real = getattr(os, name)

        def counted(path: Any = ".", *arguments: Any, _real: Any = real, **named: Any) -> Any:
            if threading.get_ident() == runner:
                paths.append(str(path))
            return _real(path, *arguments, **named)

        monkeypatch.setattr(os, name, counted)
    return paths


def test_waiting_for_a_stage_looks_up_no_files(
    here: Engine, tmp_path: Path, look_ups: list[str]
) -> None:
    """A run of 1.5 seconds more makes no more look-ups, but for the displayed progress."""
    counts = []
    for number, seconds in enumerate((0.0, 0.0, 1.5)):  # the first one warms caches up
        job = tiny.tiny_job("psg", tmp_path / str(number))
        before = len(look_ups)
        tiny.release_and_judge([job], SlowEngine(here, seconds))
        counts.append(len(look_ups) - before)
    assert counts[2] - counts[1] <= 10
    assert counts[2] < 250


def test_results_on_disk_are_not_computed_again(here: Engine, tmp_path: Path) -> None:
    job = tiny.tiny_job("psg", tmp_path / "run")
    run = tiny.release_and_judge([job], here)
    before = tiny.outputs(run.path)
    (run.path / SERVER / job.name / "closed.json").unlink()
    (run.path / SERVER / job.name / "evaluation-2-0.json").unlink()
    engine = SlowEngine(here, 0.0)
    tiny.forget()
    resume(job, engine)
    assert engine.submitted == 1
    assert tiny.outputs(run.path) == before
    resume(job, engine)
    assert engine.submitted == 1


def test_a_run_of_an_earlier_version_is_resumed(here: Engine, tmp_path: Path) -> None:
    """Its server's folder was `curator`, its evaluations were `verdict` files."""
    job = tiny.tiny_job("psg", tmp_path / "run")
    run = tiny.release_and_judge([job], here)
    run.write_config({"data": "shapes"})
    before = tiny.outputs(run.path)
    folder = run.path / SERVER / job.name
    (folder / "closed.json").unlink()
    for file in folder.glob("evaluation-*.json"):
        file.rename(folder / file.name.replace("evaluation", "verdict"))
    (run.path / SERVER).rename(run.path / "curator")
    RunDirectory.open(run.path)
    assert not (run.path / "curator").exists()
    engine = SlowEngine(here, 0.0)
    resume(job, engine)
    assert engine.submitted == 0
    assert tiny.outputs(run.path) == before


def resume(job: Job, engine: Engine) -> None:
    run = RunDirectory(Path(job.out))
    attempt(run, engine, [job])
    run.compact_metrics()


def test_a_plain_run_writes_no_files_of_extensions(here: Engine, tmp_path: Path) -> None:
    run = tiny.release_and_judge([tiny.tiny_job("psg", tmp_path / "run")], here, [Extension()])
    stems = {path.name.split("-")[0] for path in (run.path / SERVER).rglob("*.json")}
    assert stems == {"evaluation", "closed.json"}


class Extension:
    """An extension that applies to jobs of seed 3."""

    name = "length"

    def applies(self, job: Job) -> bool:
        return job.seed == 3

    def metrics(self, engine: Engine, job: Job, stage: int) -> dict[str, float]:
        return {"name_length": float(len(job.name) + stage)}


def test_an_extension_adds_metrics_to_the_jobs_it_applies_to(here: Engine, tmp_path: Path) -> None:
    jobs = [tiny.tiny_job("psg", tmp_path / "run", seed=seed) for seed in (0, 3)]
    jobs = [dataclasses.replace(job, out=str(tmp_path / "run")) for job in jobs]
    run = tiny.release_and_judge(jobs, here, [Extension()])
    rows = [row for row in run.metrics() if row.metric == "name_length"]
    assert [(row.seed, row.stage, row.value) for row in rows] == [
        (3, stage + 1, len(jobs[1].name) + stage) for stage in range(2)
    ]
    assert sorted(path.name for path in (run.path / SERVER).rglob("length-*")) == [
        "length-1.json",
        "length-2.json",
    ]


def test_a_job_that_fails_ends_no_other_and_is_taken_up_later(here: Engine, tmp_path: Path) -> None:
    """A file lies where a party of one job needs its folder."""
    whole = [tiny.tiny_job(name, tmp_path / "whole") for name in ("psg", "ldpdc")]
    undisturbed = tiny.outputs(tiny.release_and_judge(whole, here).path)
    jobs = [tiny.tiny_job(name, tmp_path / "run") for name in ("psg", "ldpdc")]
    obstacle = jobs[0].party_folder(1)
    obstacle.parent.mkdir(parents=True)
    obstacle.touch()
    run = RunDirectory(tmp_path / "run")
    tiny.forget()
    assert list(attempt(run, here, jobs).failed) == [jobs[0].name]
    booked = json.loads((run.path / SERVER / jobs[0].name / FAILED).read_text())
    assert "a file is where a directory should be" in booked["reason"]
    assert f"{jobs[0].name} failed: " in (run.path / "log.txt").read_text()
    assert {row.method for row in run.metrics()} == {"ldpdc"}
    (run.path / "report.html").touch()
    assert not run.finished
    obstacle.unlink()
    tiny.forget()
    assert not attempt(run, here, jobs).failed
    assert run.finished
    run.compact_metrics()
    assert tiny.outputs(run.path) == undisturbed


def test_if_all_jobs_fail_the_first_reason_is_the_error(here: Engine, tmp_path: Path) -> None:
    job = tiny.tiny_job("psg", tmp_path / "run")
    job.party_folder(1).parent.mkdir(parents=True)
    job.party_folder(1).touch()
    with pytest.raises(UserError, match="a file is where a directory should be"):
        attempt(RunDirectory(tmp_path / "run"), here, [job])


def attempt(run: RunDirectory, engine: Engine, jobs: list[Job]) -> module.Runner:
    """Run what is not on disk."""
    with tiny.Progress(silent=True) as progress:
        runner = module.Runner(run, engine, progress)
        runner.execute(jobs, 1)
    return runner
