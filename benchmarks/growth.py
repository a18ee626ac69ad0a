"""Costs that grow with the number of parties or images, by processor time and memory.

    python benchmarks/growth.py

Four measurements, each beside its target:

* Progress: the driver's work for one look at 1,000 parties of a stage, or at 1,000 stages half
  done, when every tenth party has moved, and when none has.
* A pooled set: the most memory while a set of 157 MB is written, read again and trained on, over
  the set's own float32 size, in a process of its own.
* Calibration of 1,000 parties with other numbers of records each, as planned once per process.
* Secure sum: 100 parties, all four stages of SecAgg+, a round after the first; per party.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from fedsynth.api.progress import Progress
from fedsynth.core.messages import Release, Request
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.types import DatasetInfo
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.train_classifier import EvaluationTask, train_and_test
from fedsynth.experiment.events import peak_memory
from fedsynth.experiment.progress import StageProgress, write_progress
from fedsynth.experiment.runner import Runner, _JobState
from fedsynth.privacy.accounting.calibration import poisson_gaussian_multiplier
from fedsynth.privacy.secagg.protocol import answer_in_stage, secure_sum
from fedsynth.storage.message_log import send_message
from fedsynth.storage.releases import ReleaseStore
from fedsynth.storage.run_directory import MESSAGES, RunDirectory

PARTIES = 1000
IMAGES = 50_000
INFO = DatasetInfo("squares", (1, 28, 28), 10, (0.5,), (0.5,))


def spent(function: Callable[[], object]) -> float:
    """Processor milliseconds of a call."""
    begun = time.process_time()
    function()
    return (time.process_time() - begun) * 1e3


def progress_look(folder: Path, stages: int) -> tuple[float, float]:
    """Milliseconds of a look when every tenth party has moved, and when none has."""
    run = RunDirectory.create(folder)
    method = SimpleNamespace(private=True)
    budget = SimpleNamespace(epsilon=1.0)
    job: Any = SimpleNamespace(name="job", plans=[None] * stages, method_impl=method, budget=budget)
    state = _JobState(job)
    state.released = dict.fromkeys(range(stages // 2), False)
    with Progress(silent=True) as progress:
        engine: Any = None
        runner = Runner(run, engine, progress)
        messages = run.path / MESSAGES
        messages.mkdir(parents=True)
        for party in range(PARTIES):
            stage = party if stages > 1 else 0
            write_progress(messages, "job", party, StageProgress(stage, 1, 1000))
        runner._read_messages([state])
        moved = []

        def look() -> None:
            runner._read_messages([state])

        def looks() -> None:
            for _ in range(100):
                look()

        for _ in range(10):
            for party in range(0, PARTIES, 10):
                stage = party if stages > 1 else 0
                at = {"kind": "progress", "job": "job", "party": party, "at": [stage, 500, 1000]}
                send_message(messages, at)
            moved.append(spent(look))
        still = spent(looks) / 100
        assert len(state.progress) == PARTIES
        return sorted(moved)[5], still


def pooled_memory() -> dict[str, float]:
    """Most memory over the size of a set, after it was made: written, read, trained on."""
    prepare_worker()

    def read(store: ReleaseStore) -> SyntheticSet:
        parts = [store.load("set", stage) for stage in (1, 2)]
        return SyntheticSet.join([part for part in parts if isinstance(part, SyntheticSet)])

    def use(count: int, folder: str) -> None:
        store = ReleaseStore(Path(folder))
        for stage in (1, 2):
            images, labels = torch.rand(count // 2, 1, 28, 28), torch.arange(count // 2) % 10
            store.save("set", stage, SyntheticSet(images, labels))
        del images, labels
        found["written by halves"] = float(peak_memory())
        pooled = read(store)
        found["read and joined"] = float(peak_memory())
        config = EvaluationConfig(width=4, nets=1, max_images=5000)
        tested = pooled.images[:100].clone(), pooled.labels[:100].clone()
        train_and_test(
            EvaluationTask("convnet", pooled, *tested, range(10), INFO, config, ("growth",))
        )
        found["trained on"] = float(peak_memory())

    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="fedsynth-") as folder:
        use(1000, folder)
        before, size = peak_memory(), IMAGES * 28 * 28 * 4
        use(IMAGES, folder)
    return {name: (most - before) / size for name, most in found.items()}


def calibration() -> float:
    """Seconds for the noise of 1,000 parties with other numbers of records, as in one plan."""
    records = [200 + 3 * party for party in range(PARTIES)]
    return 1e-3 * spent(
        lambda: [poisson_gaussian_multiplier(64 / n, 300, 1.0, 1e-5) for n in records]
    )


def secure_sum_per_party(folder: Path, parties: int = 100, rounds: int = 3) -> list[float]:
    """Milliseconds of each round per party, of parties and server together."""

    everyone, least = range(parties), parties // 2

    def ask(requests: Mapping[int, Request]) -> list[Release]:
        return [
            answer_in_stage(
                folder / str(p), p, least, asked, functools.partial(numbers, p), parties=everyone
            )
            for p, asked in requests.items()
        ]

    def numbers(party: int, _: Request) -> Release:
        return Release(party, {"sum": torch.arange(1000)}, ("entry",), {}, only_in_sum=True)

    def one_round(number: int) -> None:
        question = Request("gradient", number, {"model": torch.zeros(1000)})
        total, answered = secure_sum(ask, everyone, question, least, ("key",))
        assert len(answered) == parties
        assert torch.equal(total["sum"], torch.arange(1000) * parties)

    return [spent(functools.partial(one_round, n)) / parties for n in range(rounds)]


def main() -> None:
    """Measure, and print each number with its target."""
    if sys.argv[1:] == ["--pooled"]:
        print(json.dumps(pooled_memory()))
        return
    prepare_worker()
    with tempfile.TemporaryDirectory(prefix="fedsynth-") as folder:
        for stages, what in ((1, "parties of one stage"), (PARTIES, "stages, half of them done")):
            moved, still = progress_look(Path(folder) / str(stages), stages)
            print(
                f"progress of {PARTIES:,} {what}: {moved:.2f} ms of processor time per look when "
                f"a tenth moved, {still:.2f} ms when none did"
            )
        command = [sys.executable, __file__, "--pooled"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        for name, times in json.loads(done.stdout.splitlines()[-1]).items():
            print(f"a pooled set, {name}: {times:.2f} times its float32 size (target: at most 3)")
        print(
            f"calibration of {PARTIES:,} unequal parties: {calibration():.1f} s of processor time "
            "(target: under 5)"
        )
        first, *later = secure_sum_per_party(Path(folder) / "sum")
        print(
            f"secure sum of 100 parties: {max(later):.1f} ms of processor time per party and "
            f"round, {first:.1f} in the first round (target: at most 20)"
        )


if __name__ == "__main__":
    main()
