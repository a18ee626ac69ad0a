"""The cost of a round of requests and answers on each engine, compared with Flower's simulation.

    python benchmarks/engine_rounds.py [rounds-with-flower | registered]

The same ServerApp and ClientApp run on every engine in one run of this program; a party returns
the arrays of the request. Prints milliseconds per round (median) and the ratio to Flower's own
simulation. With `registered`: the milliseconds of a round with ten of 10,000 registered parties,
and their processor time in driver and workers together.
"""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Sequence

import torch
from processes import RAY, processor_seconds

from fedsynth.core.messages import Release, Request
from fedsynth.engine.client_app import Node
from fedsynth.engine.server_app import Ask
from fedsynth.experiment.flower_apps import open_job_engine

PARTIES = 100
WORKERS = 2
CASES = [(asked, size) for size in (10, 250_000) for asked in (1, 10, 100)]
REGISTERED, ASKED = 10_000, 10


def echo(_job: str, node: Node, _stage: int, request: Request) -> Release:
    """Return the arrays of the request: the least that a party can do."""
    return Release(node.party, request.arrays, ("entry",))


def run_cases(
    times: dict[tuple[int, int], float], rounds: int, _job: str, ask: Ask, *_: object
) -> None:
    """Time every case; the first round of each is not counted."""
    for asked, size in CASES:
        parties = range(asked)
        request = Request(arrays={"x": torch.randn(size)})
        taken = [_seconds(ask, parties, request) for _ in range(rounds + 1)]
        times[asked, size] = statistics.median(taken[1:])


def _seconds(ask: Ask, parties: Sequence[int], request: Request) -> float:
    start = time.perf_counter()
    ask(parties, 0, request)
    return time.perf_counter() - start


def measure(engine: str, rounds: int) -> dict[tuple[int, int], float]:
    """Seconds per round for every case."""
    times: dict[tuple[int, int], float] = {}
    with open_job_engine(
        engine,
        workers=WORKERS,
        answer=echo,
        serve=functools.partial(run_cases, times, rounds),
    ) as opened:
        opened.run("{}", PARTIES)
    return times


def run_registered(found: list[float], _job: str, ask: Ask, *_: object) -> None:
    """Time rounds with other parties each; the first finds all parties and is not counted."""
    request = Request(arrays={"x": torch.randn(10)})
    taken = []
    for number in range(101):
        if number == 1:
            before = processor_seconds()
        parties = range(number * ASKED, (number + 1) * ASKED)
        taken.append(_seconds(ask, parties, request))
    after = processor_seconds()
    spent = sum(after[kind] - before[kind] for kind in after if kind != RAY)
    found += [taken[0], statistics.median(taken[1:]), spent / 100]


def print_registered() -> None:
    """Measure both engines with many registered parties."""
    for engine in ("inprocess", "ray"):
        found: list[float] = []
        serve = functools.partial(run_registered, found)
        with open_job_engine(engine, workers=WORKERS, answer=echo, serve=serve) as opened:
            opened.run("{}", REGISTERED)
        first, median, spent = found
        print(
            f"{engine}, {ASKED} of {REGISTERED:,} registered parties: {median * 1e3:.2f} ms per "
            f"round (target: at most 20), {spent * 1e3:.2f} ms of processor time; the first, which "
            f"finds all parties, {first:.1f} s"
        )


def main(flower_rounds: int) -> None:
    """Measure the three engines and print the table."""
    ours = {name: measure(name, 30) for name in ("inprocess", "ray")}
    flower = measure("flower", flower_rounds)
    print(f"{'payload':>8} {'parties':>8} | {'flower ms':>10} {'inprocess':>18} {'ray':>18}")
    for asked, size in CASES:
        reference = flower[asked, size]
        cells = [
            f"{times[asked, size] * 1e3:9.2f} ({reference / times[asked, size]:5.0f}x)"
            for times in ours.values()
        ]
        payload = "tiny" if size < 100 else f"{size * 4 / 1e6:g} MB"
        print(f"{payload:>8} {asked:>8} | {reference * 1e3:10.1f} {cells[0]:>18} {cells[1]:>18}")


if __name__ == "__main__":
    if sys.argv[1:] == ["registered"]:
        print_registered()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
