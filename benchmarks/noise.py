"""The cost of exact noise: against plain float noise, in the same run.

    python benchmarks/noise.py [--repeats 15] [--stages 3] [--skip-stages]

Three measurements on one core, each with exact noise (`privacy.grid.noised`) and with plain float32
noise (torch's normals added to a float32 sum, which is what leaks), in turn:

* 10^6 noised numbers (OpenDP's discrete Gaussian for comparison, if it is installed);
* one step of dp_sgd at a party: the mechanism behind the guard, ConvNet-3, 256 records, widths 32
  (laptop) and 128 (published), and the same without any noise;
* what a party computes in the first stage of `scenario=split_mnist preset=laptop`, per private
  method, without the server's part and without evaluation, so that the share of noise is larger
  than in a whole run.

CPU milliseconds (median) and ratios; the exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from unlimited_guard import KEY, unlimited_guard

from fedsynth.core.messages import Release, Request
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo
from fedsynth.data.records import Records
from fedsynth.engine.process_setup import pin_threads, tune_malloc
from fedsynth.experiment.job import Job
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.privacy import guard as guard_module
from fedsynth.privacy.grid import noised
from fedsynth.privacy.mechanisms.gradients import ClippedGradientSum
from fedsynth.privacy.party_data import PartyData

MILLION_MS, STEP_RATIO, RELEASE_RATIO = 40.0, 1.10, 1.05  # the targets
EXACT, PLAIN, NONE = "exact", "plain float", "no noise"
WAYS = (EXACT, PLAIN, NONE)
CONVNET = DatasetInfo("benchmark", (1, 28, 28), 10, (0.5,), (0.5,))


def plain(
    values: Sequence[torch.Tensor], *, sensitivity: float, noise_multiplier: float, **_: Any
) -> list[torch.Tensor]:
    """float32 sums plus float32 normals."""
    scale = sensitivity * noise_multiplier
    return [(v.float() + torch.randn(v.shape) * scale).to(v.device) for v in values]


def nothing(values: Sequence[torch.Tensor], **_: Any) -> list[torch.Tensor]:
    """The sums alone."""
    return [v.float() for v in values]


NOISE: dict[str, Callable[..., list[torch.Tensor]]] = {EXACT: noised, PLAIN: plain, NONE: nothing}


@contextlib.contextmanager
def noise_of(way: str) -> Iterator[None]:
    """Every guard adds noise this way."""
    guard_module.noised = NOISE[way]  # type: ignore[attr-defined]
    try:
        yield
    finally:
        guard_module.noised = noised  # type: ignore[attr-defined]


def in_turn(
    work: Callable[[str], Any], ways: Sequence[str], repeats: int, *, measured: bool = False
) -> dict[str, float]:
    """Median CPU milliseconds of each way; the first round only warms up.

    Where `measured`, `work` returns the CPU seconds that count."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(repeats + 1):
        for way in ways if repeat % 2 else reversed(ways):
            begun = time.process_time()
            found = work(way)
            seconds = found if measured else time.process_time() - begun
            times[way].append(seconds * 1e3)
    return {way: statistics.median(times[way][1:]) for way in ways}


def verdict(text: str, found: float, most: float) -> bool:
    """Print a target and whether it holds."""
    print(
        f"  target {'holds' if found <= most else 'MISSED'}: {text} {found:.3g}, at most {most:g}"
    )
    return found <= most


def million(repeats: int) -> bool:
    """10^6 numbers, as one gradient of a large net."""
    values = [torch.zeros(1_000_000, dtype=torch.float64)]
    serial = iter(range(10**9))

    def work(way: str) -> None:
        stream = KEY.stream("million", next(serial))
        NOISE[way](values, sensitivity=0.1, noise_multiplier=1.0, stream=stream)

    times = in_turn(work, (EXACT, PLAIN), repeats)
    print(f"10^6 noised numbers: exact {times[EXACT]:.1f} ms, plain float {times[PLAIN]:.1f} ms")
    with contextlib.suppress(ImportError):
        print(f"  OpenDP's discrete Gaussian: {opendp_million():,.0f} ms")
    return verdict("milliseconds for 10^6 numbers are", times[EXACT], MILLION_MS)


def opendp_million() -> float:
    """Milliseconds for 10^6 numbers, from 20,000."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=2.0**20)
    begun = time.process_time()
    mechanism([0] * 20_000)
    return (time.process_time() - begun) * 50e3


def step(width: int, repeats: int) -> bool:
    """One step of dp_sgd: 256 of 4,096 records, from the ledger to the noised sum."""
    generator = torch.Generator().manual_seed(width)
    images = torch.randint(0, 256, (256, 1, 28, 28), generator=generator, dtype=torch.uint8)
    records = Records(images, torch.arange(256) % 10)
    mechanism = ClippedGradientSum(
        model=make_convnet(width, CONVNET, 10, "benchmark"),
        inputs=lambda pixels, _: (pixels - 0.5) / 0.5,
        clip=0.1,
        noise_multiplier=1.0,
        sampling_rate=1.0,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = PartyData(
            records,
            PartyInfo(0, 256, dict.fromkeys(range(10), 25)),
            work_dir=folder / "work",
            fingerprint="benchmark",
        )
        guard = unlimited_guard(folder, 256, 1.0)
        calls = iter(range(10**6))
        with guard.reserve(mechanism.event(Budget(1, 1e-5).unit), 10**6):

            def work(way: str) -> None:
                with noise_of(way):
                    guard.apply(mechanism, data, call=next(calls))

            times = in_turn(work, WAYS, repeats)
    text = ", ".join(f"{way} {milliseconds:.1f} ms" for way, milliseconds in times.items())
    print(f"dp_sgd step, width {width}: {text}")
    return verdict("exact to plain float is", times[EXACT] / times[PLAIN], STEP_RATIO)


def private_stage(repeats: int) -> bool:
    """What the party of the first stage of split_mnist computes, per private method at laptop
    settings: from reading a request to its release, without the server's part."""
    from fedsynth.experiment.config import resolve
    from fedsynth.experiment.experiment import Experiment

    config = resolve({"scenario": "split_mnist", "preset": "laptop", "epsilon": 1, "noise_seed": 1})
    totals = dict.fromkeys((EXACT, PLAIN), 0.0)
    print("split_mnist, laptop, the party's part of the first stage:")
    with tempfile.TemporaryDirectory() as name:
        folders = (Path(name) / str(number) for number in itertools.count())
        for job in Experiment.of(config).jobs:
            if job.method_impl.private:

                def work(way: str, job: Job = job) -> float:
                    with noise_of(way):
                        return party_seconds(dataclasses.replace(job, out=str(next(folders))))

                times = in_turn(work, (EXACT, PLAIN), repeats, measured=True)
                for way in totals:
                    totals[way] += times[way]
                print(
                    f"  {job.method}: exact {times[EXACT] / 1e3:.2f} s, plain float "
                    f"{times[PLAIN] / 1e3:.2f} s, ratio {times[EXACT] / times[PLAIN]:.4f}",
                    flush=True,
                )
    return verdict("exact to plain float is", totals[EXACT] / totals[PLAIN], RELEASE_RATIO)


def party_seconds(job: Job) -> float:
    """CPU seconds that the parties of the first stage of a job take for all their answers."""
    from fedsynth.engine.client_app import Node
    from fedsynth.experiment.client_session import answer_request, forget_parties
    from fedsynth.experiment.proposal import proposal_text
    from fedsynth.experiment.server_session import StageConnection
    from fedsynth.experiment.simulated_parties import PARTY_FILE, write_policies
    from fedsynth.storage.run_directory import RunDirectory

    RunDirectory.create(job.out)
    forget_parties()
    write_policies(job)
    proposal, seconds = proposal_text(job), 0.0

    def ask(parties: Sequence[int], stage: int, request: Request, *_: Any) -> list[Release]:
        nonlocal seconds
        nodes = [Node(party, str(job.party_folder(party) / PARTY_FILE)) for party in parties]
        begun = time.process_time()
        answers = [answer_request(proposal, node, stage, request) for node in nodes]
        seconds += time.process_time() - begun
        return answers

    job.method_impl.serve(StageConnection(job, 0, ask, ()))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--stages", type=int, default=3, help="repetitions of the first stage")
    parser.add_argument("--skip-stages", action="store_true")
    options = parser.parse_args()
    tune_malloc()  # as every run does
    pin_threads(1)
    torch.set_num_threads(1)
    held = [million(options.repeats)]
    held += [step(width, options.repeats) for width in (32, 128)]
    if not options.skip_stages:
        held.append(private_stage(options.stages))
    raise SystemExit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
