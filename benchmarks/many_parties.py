"""The cost of a round, and of a run, with ten times as many parties.

    python benchmarks/many_parties.py [rounds] [--method gs_wgan] [--engine ray]

340 and 3,400 virtual users, one per party, ten of them asked per round; each size in a process of
its own. The default method does very little at a party (a noised sum of its images), in one
process, so that the framework is measured and not the method. Every request is the first one to its
party and the most expensive, as folder, key and ledger are created. Prints milliseconds per round
(wall and CPU, median), the ratio, the seconds before and after the rounds, and the peak memory of
the process (with Ray: of all processes, proportional shares summed).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import roll_call
from processes import Memory

from fedsynth.api.progress import Progress
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.experiment.config import ExperimentConfig, resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.flower_apps import open_job_engine
from fedsynth.experiment.runner import Runner
from fedsynth.experiment.scenario import ensure_data
from fedsynth.experiment.server_session import StageConnection
from fedsynth.report.page import write_report
from fedsynth.report.report_data import build_report_data
from fedsynth.storage.run_directory import RunDirectory

SIZES = (340, 3400)
ASKED = 10
TINY_GAN = {"warm_steps": 0, "critic_steps": 1, "width": 4, "depth": 4, "batch": 4, "spc": 10}


def configured(method: str, rounds: int, parties: int, out: Path) -> ExperimentConfig:
    """A run of one method with this many users."""
    settings: dict[str, Any] = {"rounds": rounds}
    if method == "gs_wgan":
        settings = {**TINY_GAN, "subsets": 1, "steps": rounds}
    return resolve(
        {
            "scenario": "emnist_users", "source": "virtual", "parties": parties, "epsilon": [10],
            "users_per_round": ASKED, "method": [method], method: settings, "out": str(out),
            "unit": "user" if method == "gs_wgan" else "record",
            "evaluation": {"width": 4, "nets": 1, "max_images": 100},
            "plugin": [roll_call.__file__],
        }
    )  # fmt: skip


def timed(seconds: list[tuple[float, float]], ask: Callable[..., Any]) -> Callable[..., Any]:
    """`StageConnection.ask` with a stop-watch; questions of ten parties are rounds."""

    def asked(self: StageConnection, who: Any, *arguments: Any, **named: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        answers = ask(self, who, *arguments, **named)
        if len(who) == ASKED:
            seconds.append((time.perf_counter() - wall, time.process_time() - cpu))
        return answers

    return asked


def measure(method: str, engine: str, rounds: int, parties: int) -> dict[str, float]:
    """One run from its plan to its report."""
    prepare_worker()
    seconds: list[tuple[float, float]] = []
    with (
        tempfile.TemporaryDirectory(prefix="fedsynth-") as folder,
        mock.patch.object(StageConnection, "ask", timed(seconds, StageConnection.ask)),
    ):
        begun = time.perf_counter()
        config = configured(method, rounds, parties, Path(folder) / "run")
        ensure_data(config.scenario)
        experiment = Experiment.of(config, Path(folder) / "run")
        planned = time.perf_counter()
        run = RunDirectory.create(Path(folder) / "run")
        run.write_config(config.as_dict())
        with (
            open_job_engine(engine) as opened,
            Progress(silent=True) as progress,
            Memory() as memory,
        ):
            Runner(run, opened, progress).execute(experiment.jobs, 1)
            write_report(run, build_report_data(experiment, "", []))
        ended = time.perf_counter()
        page = (run.path / "report.html").stat().st_size
    wall = [w for w, _ in seconds[1:]]
    return {
        "wall": 1e3 * statistics.median(wall),
        "cpu": 1e3 * statistics.median(c for _, c in seconds[1:]),
        "rounds": len(seconds),
        "plan": planned - begun,
        "rest": ended - planned - sum(w for w, _ in seconds),
        "memory": memory.all / 1e9,
        "report": page / 1e6,
    }


def main() -> None:
    """Measure both sizes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=34)
    parser.add_argument("--method", default="roll_call", choices=("roll_call", "gs_wgan"))
    parser.add_argument("--engine", default="inprocess", choices=("inprocess", "ray"))
    parser.add_argument("--parties", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.parties:
        print(json.dumps(measure(chosen.method, chosen.engine, chosen.rounds, chosen.parties)))
        return
    print(f"{chosen.method}, {chosen.engine}, {chosen.rounds} rounds of {ASKED} parties")
    print(f"{'parties':>8} {'ms a round':>11} {'CPU ms':>7} {'plan s':>7} {'rest s':>7} {'GB':>6}")
    found = []
    for parties in SIZES:
        command = [sys.executable, __file__, *sys.argv[1:], "--parties", str(parties)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        row = json.loads(done.stdout.splitlines()[-1])
        found.append(row)
        print(
            f"{parties:>8,} {row['wall']:>11.1f} {row['cpu']:>7.1f} {row['plan']:>7.1f} "
            f"{row['rest']:>7.1f} {row['memory']:>6.2f}   report {row['report']:.1f} MB"
        )
    few, many = found
    print(
        f"ten times the parties: {many['wall'] / few['wall']:.2f} times the wall time per round, "
        f"{many['cpu'] / few['cpu']:.2f} times the CPU time"
    )


if __name__ == "__main__":
    main()
