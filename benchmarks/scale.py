"""The cost of parties up to 10,000, a queue model, and from both the cost of 10 million.

    python benchmarks/scale.py [sizes ...]
    python benchmarks/scale.py --measure SIZE > FILE     # one size alone
    python benchmarks/scale.py --tables FILE ...         # the rest, from such files

First, runs in which every party releases once, with one Ray worker, each size in a process of its
own. The party's method does very little, so that the framework is measured: per party processor
time in driver and worker, memory, files and bytes on disk, and bytes of messages. A cost per party
is the difference between the largest size and the one before, divided by the parties between them;
costs per party of the sizes before predict the largest one, as a check.

Second, the queue model. Parties that sleep stand for computation on other nodes, so that four
workers need no four processors. The model: the driver prepares all requests, the workers answer
their batches at the same time, the driver reads all replies. A round takes

    N d + max over workers of (sum over its parties of (s + c))

with N parties, s the computation of a party, c the worker's and d the driver's time per party
around it. Printed is the time of rounds beside the model's.

Third, what follows for 10 million parties on 100 nodes, and how many parties a resource allows.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import roll_call
import torch
from processes import DRIVER, RAY, WORKERS, Memory, processor_seconds

from fedsynth.api.progress import Progress
from fedsynth.core.messages import Release, Request
from fedsynth.core.text import bytes_text, markdown_table
from fedsynth.engine.client_app import Node
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.engine.server_app import Ask
from fedsynth.experiment.config import ExperimentConfig, resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.flower_apps import open_job_engine
from fedsynth.experiment.progress import duration
from fedsynth.experiment.runner import Runner
from fedsynth.experiment.scenario import ensure_data
from fedsynth.experiment.server_session import StageConnection
from fedsynth.storage.run_directory import RunDirectory

SIZES = (100, 1000, 10_000)
PARTIES, NODES = 10_000_000, 100
CORES, GIGABYTES, DISK = 16, 64, 1e12  # of a node, as assumed
DAY = 86_400.0
SLEEPERS = 200
SLEEP = 0.02  # seconds, the mean

Costs = dict[str, float]


# Runs with every party


def configured(parties: int, out: Path) -> ExperimentConfig:
    """A run on MNIST in which this many parties release once, at the same time."""
    return resolve(
        {
            "scenario": "split_mnist", "data": "mnist", "partition": "iid", "options": {},
            "parties": parties, "stages": "together", "epsilon": [10], "out": str(out),
            "method": ["roll_call"], "roll_call": {"rounds": 1, "per_round": parties},
            "evaluation": {"width": 4, "nets": 1, "max_images": 100},
            "plugin": [roll_call.__file__],
        }
    )  # fmt: skip


def measure(parties: int) -> Costs:
    """One run in which each party releases once; processor seconds, bytes and files in total."""
    prepare_worker()
    with tempfile.TemporaryDirectory(prefix="fedsynth-") as folder:
        out = Path(folder) / "run"
        begun = time.process_time()
        config = configured(parties, out)
        ensure_data(config.scenario)
        experiment = Experiment.of(config, out)
        planned = time.process_time() - begun
        run = RunDirectory.create(out)
        run.write_config(config.as_dict())
        rounds: list[tuple[float, float, float]] = []
        with (
            Memory() as memory,
            mock.patch.object(StageConnection, "ask", _watched(memory, rounds)),
            open_job_engine("ray", workers=1) as opened,
            Progress(silent=True) as progress,
        ):
            before = processor_seconds()
            before[DRIVER] -= memory.spent
            Runner(run, opened, progress).execute(experiment.jobs, 1)
            after = processor_seconds()
            after[DRIVER] -= memory.spent
        (plan,) = experiment.jobs[0].plans
        spent = {kind: after[kind] - before[kind] for kind in before}
        held = list(experiment.jobs[0].parties_folder().rglob("*"))
        wall, round_driver, round_worker = max(rounds)
        return {
            "parties": parties,
            "plan": planned,
            "round": round_driver,
            "worker": round_worker,
            "around": spent[DRIVER] - round_driver,
            "ray": spent[RAY],
            "wall": wall,
            "driver": memory.largest[DRIVER],
            "hosting": memory.largest[WORKERS],
            "files": len(held),
            "disk": sum(path.lstat().st_blocks * 512 for path in held),
            "run": sum(p.stat().st_size for p in out.glob("*") if p.is_file()),
            "message": sum(share.bytes_up for share in plan.parties),
        }


def _watched(memory: Memory, rounds: list[tuple[float, float, float]]) -> Callable[..., Any]:
    """`StageConnection.ask`; notes seconds, and processor seconds of driver and workers."""
    ask = StageConnection.ask

    def asked(self: StageConnection, *arguments: Any, **named: Any) -> Any:
        wall, before, looked = time.perf_counter(), processor_seconds(), memory.spent
        answers = ask(self, *arguments, **named)
        after, looked = processor_seconds(), memory.spent - looked
        used = [after[kind] - before[kind] for kind in (DRIVER, WORKERS)]
        rounds.append((time.perf_counter() - wall, used[0] - looked, used[1]))
        return answers

    return asked


def per_party(few: Costs, many: Costs) -> Costs:
    """Costs of one party more."""
    parties = many["parties"] - few["parties"]
    return {name: (many[name] - few[name]) / parties for name in many}


def print_runs(rows: Sequence[Costs]) -> None:
    """The table of the runs, and the prediction of the largest from the others."""
    head = ["parties", "plan s", "round: driver s", "worker s", "around it s", "Ray's own s",
            "driver", "worker", "files", "disk", "run's files", "messages"]  # fmt: skip
    cells = [
        [f"{row['parties']:,.0f}"]
        + [f"{row[name]:.1f}" for name in ("plan", "round", "worker", "around", "ray")]
        + [bytes_text(row[name]) for name in ("driver", "hosting")]
        + [f"{row['files']:,.0f}"]
        + [bytes_text(row[name]) for name in ("disk", "run", "message")]
        for row in rows
    ]
    print(markdown_table(head, cells))
    if len(rows) < 3:
        return
    first, second, largest = rows[-3:]
    one = per_party(first, second)
    print(f"\n{largest['parties']:,.0f} parties, predicted from the two sizes before:")
    for name in ("round", "worker", "around", "files", "disk", "run"):
        predicted = second[name] + one[name] * (largest["parties"] - second["parties"])
        print(f"  {name:8} {largest[name] / predicted:6.2f} times the prediction")


# The queue


def sleep_answer(_job: str, node: Node, _: int, request: Request) -> Release:
    """A party whose computation is a sleep."""
    time.sleep(float(request.arrays["seconds"][node.party]))
    return Release(node.party, {}, ("entry",))


def ask_all(found: dict[str, float], seconds: Sequence[float], _: str, ask: Ask, *__: Any) -> None:
    """Ask all parties in three rounds, the first of which is not counted."""
    request = Request(arrays={"seconds": torch.tensor(seconds)})
    taken = []
    for _number in range(3):
        begun, before = time.perf_counter(), processor_seconds()
        ask(range(len(seconds)), 0, request)
        wall, after = time.perf_counter() - begun, processor_seconds()
        used = {kind: (after[kind] - before[kind]) / len(seconds) for kind in before}
        taken.append({"wall": wall, "driver": used[DRIVER], "worker": used[WORKERS]})
    for name in taken[0]:
        found[name] = statistics.mean(row[name] for row in taken[1:])


@contextlib.contextmanager
def sleepers(workers: int) -> Iterator[Callable[..., Costs]]:
    """An engine with that many workers; the function times a round with parties that sleep so
    long, whose numbers of records tell how long, or not."""
    case: list[Any] = []
    with open_job_engine(
        "ray", workers=workers, num_cpus=0, answer=sleep_answer, serve=lambda *a: ask_all(*case, *a)
    ) as opened:

        def round_costs(seconds: Sequence[float], known: bool) -> Costs:
            found: Costs = {}
            case[:] = [found, seconds]
            records = [max(1, round(1e6 * s)) for s in seconds] if known else []
            opened.run("{}", len(seconds), records=records)
            return found

        yield round_costs


def predicted(
    seconds: Sequence[float], workers: int, driver: float, worker: float, known: bool
) -> float:
    """The model's time of a round: the heaviest party first if the driver knows which one it is,
    otherwise equal numbers of parties."""
    loads = [(0.0, index) for index in range(workers)]
    for position, s in enumerate(sorted(seconds, reverse=True) if known else seconds):
        at = loads.index(min(loads)) if known else position % workers
        loads[at] = (loads[at][0] + s + worker, at)
    return len(seconds) * driver + max(loads)[0]


def print_queue() -> None:
    """Rounds of sleeping parties beside the model's."""
    spread = np.random.default_rng(0).lognormal(0.0, 1.0, SLEEPERS)
    unequal = [float(s) for s in SLEEP * spread / spread.mean()]
    cases = [("equal", [SLEEP] * SLEEPERS, True), ("log-normal", unequal, True),
             ("log-normal, records unknown", unequal, False)]  # fmt: skip
    idle: Costs = {}
    rows = []
    for workers in (1, 2, 4):
        with sleepers(workers) as round_costs:
            idle = idle or round_costs([0.0] * SLEEPERS, True)
            for kind, seconds, known in cases:
                taken = round_costs(seconds, known)["wall"]
                model = predicted(seconds, workers, idle["driver"], idle["worker"], known)
                row = [kind, str(workers), f"{taken:.2f}", f"{model:.2f}", f"{taken / model:.2f}"]
                rows.append(row)
    print(f"\ntime around an answer: driver {idle['driver'] * 1e3:.2f} ms, worker "
          f"{idle['worker'] * 1e3:.2f} ms per party")  # fmt: skip
    print(markdown_table(["parties' times", "workers", "round s", "model s", "ratio"], rows))


# 10 million parties


def print_projection(one: Costs, fixed: Costs) -> None:
    """The need and the limit of each resource for 10 million parties on 100 nodes."""
    cores, share = NODES * CORES, PARTIES / NODES
    driver = one["plan"] + one["round"] + one["around"]
    memory = GIGABYTES * 1e9
    print(
        f"\n{PARTIES:,} parties on {NODES} nodes of {CORES} cores, {GIGABYTES} GB of memory and "
        f"{bytes_text(DISK)} of disk each; one release per party:"
    )
    rows = [
        ("processor of the workers", one["worker"] * PARTIES / cores,
         DAY * cores / one["worker"], duration),
        ("processor of the driver", driver * PARTIES, DAY / driver, duration),
        ("memory of the driver", fixed["driver"] + one["driver"] * PARTIES,
         (memory - fixed["driver"]) / max(one["driver"], 1e-9), bytes_text),
        ("memory of a node's workers", CORES * fixed["hosting"] + one["hosting"] * share,
         NODES * (memory - CORES * fixed["hosting"]) / max(one["hosting"], 1e-9), bytes_text),
        ("ledgers and keys, a disk per node", one["disk"] * share,
         NODES * DISK / one["disk"], bytes_text),
        ("the same on one shared disk", one["disk"] * PARTIES, DISK / one["disk"], bytes_text),
        ("files of the run at the driver", one["run"] * PARTIES, DISK / one["run"], bytes_text),
        ("messages into the driver", one["message"] * PARTIES,
         DAY * 1.25e9 / one["message"], bytes_text),
    ]  # fmt: skip
    cells = [
        [name, text(cost), f"{most:,.0f}" if most < 1e12 else "more than 10^12"]
        for name, cost, most, text in rows
    ]
    head = ["resource", "10 million parties", "parties at most"]
    print(markdown_table(head, cells))
    print(f"{one['files']:.1f} files and folders per party: {one['files'] * PARTIES:,.0f}")
    print("at most: of a day, of the memory, of the disk, of 10 Gbit/s for a day")


def main() -> None:
    """Measure, and print the tables."""
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(int(sys.argv[2]))))
        return
    rows = []
    if sys.argv[1:2] == ["--tables"]:
        rows = [json.loads(Path(name).read_text().splitlines()[-1]) for name in sys.argv[2:]]
    for parties in [] if rows else [int(word) for word in sys.argv[1:]] or SIZES:
        command = [sys.executable, __file__, "--measure", str(parties)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        if done.returncode:
            sys.exit(done.stderr)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"{parties:,} parties done", file=sys.stderr, flush=True)
    print_runs(rows)
    print_queue()
    print_projection(per_party(*rows[-2:]), rows[0])


if __name__ == "__main__":
    main()
