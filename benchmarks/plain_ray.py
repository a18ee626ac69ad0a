"""The cost of the engine over plain Ray, for a small training step at ten parties.

    python benchmarks/plain_ray.py [rounds]

Each round sends the parameters of a small ConvNet to ten parties; each takes one step on its batch
of 32 images and returns its parameters. Plain Ray: two actors, to which one call per party is sent
and whose replies are waited for, with nothing else. Ours: the ServerApp and ClientApp, with Flower
messages and their checks, on the engine's two actors. Both take turns, round by round, in one run
of this program and in one Ray. Printed are the time per round (median), the processor time per
round of driver and workers (mean), and their ratios: the target is 1.1 at most. The processor time
of the step alone, in this process, tells how small it is.
"""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import ray
import torch
from processes import RAY, processor_seconds

from fedsynth.core.messages import Release, Request
from fedsynth.engine.client_app import Node
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.engine.server_app import Ask
from fedsynth.experiment.flower_apps import open_job_engine

PARTIES, WORKERS, ROUNDS, BATCH = 10, 2, 100, 32
MOST = 1.1

Tensors = Mapping[str, torch.Tensor]


def network() -> torch.nn.Module:
    """A small ConvNet, the same in every process."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, stride=2), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(32 * 36, 10),
    )  # fmt: skip


_parties: dict[int, tuple[torch.nn.Module, torch.Tensor, torch.Tensor]] = {}  # of this process


def _party(party: int) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    if party not in _parties:
        generator = torch.Generator().manual_seed(party)
        images = torch.rand(BATCH, 1, 28, 28, generator=generator)
        labels = torch.randint(0, 10, (BATCH,), generator=generator)
        _parties[party] = network(), images, labels
    return _parties[party]


def step(party: int, parameters: Tensors) -> dict[str, torch.Tensor]:
    """One step of gradient descent at a party; returns its parameters."""
    model, images, labels = _party(party)
    model.load_state_dict(parameters)
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=0.1)
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


class PlainActor:
    """An actor as the documentation of Ray shows them."""

    def __init__(self) -> None:
        prepare_worker()

    def step(self, party: int, parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See `step`; Ray carries arrays of numpy without a copy of its own."""
        tensors = {name: torch.from_numpy(array.copy()) for name, array in parameters.items()}
        return {name: tensor.numpy() for name, tensor in step(party, tensors).items()}


def plain_round(actors: list[Any], parameters: Tensors) -> None:
    """One round with plain Ray."""
    arrays = {name: tensor.numpy() for name, tensor in parameters.items()}
    calls = [actors[i % WORKERS].step.remote(i, arrays) for i in range(PARTIES)]
    replies = ray.get(calls)
    assert len([torch.from_numpy(a.copy()) for r in replies for a in r.values()]) == 6 * PARTIES


def answer(_job: str, node: Node, _stage: int, request: Request) -> Release:
    """One step at a party of the engine."""
    return Release(node.party, step(node.party, request.arrays), ("entry",))


def take_turns(found: dict[str, Any], rounds: int, _job: str, ask: Ask, *_more: object) -> None:
    """Time rounds of both sides; the first three are not counted."""
    parameters = network().state_dict()
    actors = [ray.remote(PlainActor).options(num_cpus=0).remote() for _ in range(WORKERS)]
    sides: dict[str, Callable[[], object]] = {
        "plain Ray": functools.partial(plain_round, actors, parameters),
        "engine": lambda: ask(range(PARTIES), 0, Request(arrays=parameters)),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(rounds + 3):
        for name, run_round in sides.items():
            before, begun = processor_seconds(), time.perf_counter()
            run_round()
            wall, after = time.perf_counter() - begun, processor_seconds()
            spent = sum(after[kind] - before[kind] for kind in after if kind != RAY)
            if number >= 3:
                times[name].append((wall, spent))
    for name, rows in times.items():
        found[name] = (
            statistics.median(wall for wall, _ in rows),
            statistics.mean(spent for _, spent in rows),
        )
    begun = time.process_time()
    for _ in range(20):
        step(0, parameters)
    found["step"] = (time.process_time() - begun) / 20


def main(rounds: int) -> None:
    """Measure both sides and print the ratio."""
    found: dict[str, Any] = {}
    with open_job_engine(
        "ray", workers=WORKERS, answer=answer, serve=functools.partial(take_turns, found, rounds)
    ) as opened:
        opened.run("{}", PARTIES)
    size = sum(tensor.numel() for tensor in network().state_dict().values())
    alone = found.pop("step") * 1e3
    print(f"{PARTIES} parties, one step of {alone:.1f} ms of processor time each, {size:,} "
          f"parameters, {WORKERS} workers, {rounds} rounds of each side")  # fmt: skip
    for name, (wall, spent) in found.items():
        print(f"  {name:10} {wall * 1e3:8.1f} ms a round, {spent * 1e3:8.1f} ms of processor time")
    (plain_wall, plain_spent), (wall, spent) = found["plain Ray"], found["engine"]
    print(f"  engine over plain Ray: {wall / plain_wall:.2f} by the clock, "
          f"{spent / plain_spent:.2f} by processor time (target: at most {MOST})")  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
