"""Speed-up of GS-WGAN's critics by a second worker, and overhead of its loop beside model code.

    python benchmarks/gs_wgan_critics.py [critics [warm-start steps [rounds [width depth]]]]

First: the critics of one party are warmed up by one worker and by two, on the same engine in one
run of this program. The ratio of the wall clock needs two idle cores; the ratio of processor time
(all of it with one worker, over the busiest of two workers) is what two idle cores would give.

Second: rounds of a federation of ten parties with one critic each, in this process and on two
workers: the fraction of the processor time of server and parties that is spent outside model code
(training of critics, gradients, steps of the generator). Noise, ledger, files and messages are
outside. The processor time of the same processes while idle (Ray polls for messages) is measured
first and printed separately, like that of Ray's own programs: both grow with the wall clock, and so
with the load of the machine. Batches and steps are the published ones; critics and generator have
the sizes of the laptop preset unless width and depth are given (published: 64 256).
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from fedsynth.core.messages import Release, Request
from fedsynth.core.types import Budget
from fedsynth.engine.client_app import Node
from fedsynth.engine.server_app import Ask, StageCallback
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment import client_session, server_session
from fedsynth.experiment.flower_apps import open_job_engine
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario import ScenarioConfig
from fedsynth.experiment.simulated_parties import run_job
from fedsynth.methods.gs_wgan.critic import Critic
from fedsynth.methods.gs_wgan.generator import GeneratorTrainer
from fedsynth.methods.gs_wgan.gs_wgan import CONCURRENT_REQUESTS, warm_up
from fedsynth.methods.registry import method

BUDGET = Budget(10.0, 1e-5)
IDLE_SECONDS = 10.0
MODEL_CODE = ((Critic, "train"), (Critic, "upstream"), (Critic, "warm_up"),
              (GeneratorTrainer, "step"), (GeneratorTrainer, "sample"))  # fmt: skip


def make_job(out: Path, scenario: ScenarioConfig, **changes: Any) -> Job:
    """The published GS-WGAN except for the sizes of its networks and these changes."""
    gs_wgan = method("gs_wgan")
    settings = {**dataclasses.asdict(gs_wgan.Config()), "width": 16, "depth": 64, **changes}
    return Job("gs_wgan", settings, BUDGET, 0, scenario, EvaluationConfig(), str(out), 1)


# Processor time, recorded by every process in its own files


@contextmanager
def _recorded(folder: Path, name: str) -> Iterator[None]:
    begun = time.process_time()
    try:
        yield
    finally:
        with (folder / f"{name}-{os.getpid()}").open("a") as file:
            file.write(f"{time.process_time() - begun}\n")


def _seconds_per_process(folder: Path, name: str) -> list[float]:
    """Recorded seconds per process."""
    return [sum(map(float, f.read_text().split())) for f in folder.glob(f"{name}-*")]


def _clear(folder: Path) -> None:
    for name in ("answer", "model"):
        for file in folder.glob(f"{name}-*"):
            file.unlink()


def watch_models(folder: Path) -> None:
    """Record the processor time of model code in this process."""
    for owner, name in MODEL_CODE:
        function = getattr(owner, name)
        if not hasattr(function, "watched"):
            setattr(owner, name, _watched(function, folder))


def _watched(function: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(*arguments: Any, **named: Any) -> Any:
        with _recorded(folder, "model"):
            return function(*arguments, **named)

    around.watched = True  # type: ignore[attr-defined]
    return around


def answer(timings: Path, proposal: str, node: Node, stage: int, request: Request) -> Release:
    """A party's answer, with its processor time recorded."""
    watch_models(timings)
    with _recorded(timings, "answer"):
        return client_session.answer_request(proposal, node, stage, request)


# First: warm starts


def warm_only(job: str, ask: Ask, *_: object) -> None:
    """The first phase of the server's side only."""
    parsed = Job.parse(job)
    connection = server_session.StageConnection(parsed, 0, ask, ())
    with ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool:
        warm_up(parsed.config.schedule(parsed.plan(0).stage), connection, pool)


def warm_seconds(
    timings: Path, workers: int, critics: int, steps: int
) -> tuple[float, list[float]]:
    """Wall seconds to warm up all critics, and processor seconds of every worker."""
    scenario = ScenarioConfig(data="mnist", partition="single", parties=1, stages="together")
    sizes = {"subsets": critics, "steps": critics, "keep": False}
    job = make_job(timings / f"run-{workers}", scenario, warm_steps=steps, **sizes)
    first = make_job(timings / f"first-{workers}", scenario, warm_steps=0, **sizes)
    with open_job_engine(
        "ray", workers=workers, answer=functools.partial(answer, timings), serve=warm_only
    ) as engine:
        run_job(engine, first)  # workers have imported modules and read data
        _clear(timings)
        begun = time.perf_counter()
        run_job(engine, job)
        return time.perf_counter() - begun, _seconds_per_process(timings, "answer")


def compare_workers(timings: Path, critics: int, steps: int) -> None:
    """Print both ratios."""
    print(f"{critics} critics, {steps} warm-start steps each")
    one, alone = warm_seconds(timings, 1, critics, steps)
    two, side_by_side = warm_seconds(timings, 2, critics, steps)
    print(f"  one worker   {one:7.1f} s wall, {sum(alone):7.1f} s of processor time")
    busy = ", ".join(f"{seconds:.1f}" for seconds in side_by_side)
    print(f"  two workers  {two:7.1f} s wall, {busy} s of processor time")
    print(f"  wall clock {one / two:.2f}x (other programs count)")
    print(f"  processor time of one over the busier of two {sum(alone) / max(side_by_side):.2f}x")


# Second: the loop


@dataclasses.dataclass(frozen=True)
class Spent:
    """Processor seconds of the loop."""

    models: float
    loop: float  # of this process and the workers, models and all
    idle: float  # of the same, in the same time, had there been nothing to do
    besides: float  # of programs that Ray runs beside them
    wall: float

    def __str__(self) -> str:
        outside = 100 * (1 - self.models / (self.loop - self.idle))
        return (
            f"{outside:5.1f}% of {self.loop - self.idle:.1f} processor seconds outside model code; "
            f"in {self.wall:.0f} s of wall clock idle threads took {self.idle:.1f} more, "
            f"Ray's own programs {self.besides:.1f}"
        )


def loop_spent(timings: Path, engine: str, rounds: int, sizes: dict[str, Any]) -> Spent:
    """Processor time of the rounds of a federation."""
    scenario = ScenarioConfig(data="mnist", partition="iid", parties=10, stages="together")
    sizes = {"subsets": 10, "warm_steps": 0, "spc": 10, "keep": False, **sizes}
    job = make_job(timings / f"run-{engine}", scenario, steps=rounds, **sizes)
    first = make_job(timings / f"first-{engine}", scenario, steps=10, **sizes)
    with open_job_engine(
        engine,
        workers=2,
        answer=functools.partial(answer, timings),
        serve=functools.partial(_serve_recorded, timings),
    ) as opened:
        run_job(opened, first)
        _clear(timings)
        resting, *_ = _while(lambda: time.sleep(IDLE_SECONDS))
        ours, besides, wall = _while(lambda: run_job(opened, job))
    return Spent(
        sum(_seconds_per_process(timings, "model")),
        ours,
        resting * wall / IDLE_SECONDS,
        besides,
        wall,
    )


def _while(run: Callable[[], object]) -> tuple[float, float, float]:
    """Processor seconds of our and of other processes during a call, and wall seconds."""
    before, begun = _all_seconds(), time.perf_counter()
    run()
    wall = time.perf_counter() - begun
    ours, besides = (now - then for now, then in zip(_all_seconds(), before, strict=True))
    return ours, besides, wall


def _serve_recorded(timings: Path, job: str, ask: Ask, on_stage: StageCallback, *_: object) -> None:
    watch_models(timings)
    server_session.serve_job(job, ask, on_stage)


def _all_seconds() -> tuple[float, float]:
    """Processor time of this process and its workers, and of Ray's other processes."""
    us = psutil.Process()
    ours, besides = sum(us.cpu_times()[:2]), 0.0
    for child in us.children(recursive=True):
        seconds = sum(child.cpu_times()[:2])
        if "RayWorker" in " ".join(child.cmdline()):
            ours += seconds
        else:
            besides += seconds
    return ours, besides


def main(
    critics: int = 16, steps: int = 10, rounds: int = 200, width: int = 0, depth: int = 0
) -> None:
    """Print both comparisons; no critics: the second only."""
    sizes = {"width": width, "depth": depth} if width and depth else {}
    with tempfile.TemporaryDirectory() as folder:
        if critics:
            compare_workers(Path(folder), critics, steps)
        print(f"{rounds} rounds of ten parties with one critic each {sizes or ''}")
        for engine in ("inprocess", "ray"):
            spent = loop_spent(Path(folder), engine, rounds, sizes)
            print(f"  {engine:9} {spent}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:6]))
