"""Time of one NDPDC iteration, against a plain one that follows the paper line by line.

    python benchmarks/ndpdc_iteration.py [--widths 32 128] [--repeats 5] [--clock wall|cpu]

The plain one processes one class at a time, by autograd, with Python's default memory settings;
ours is the whole step as a party does it, with its sampling, its guard and its secret noise. Each
runs in a fresh process with one thread; repetitions take turns and medians are compared. Data are
random numbers: nothing here depends on what an image shows.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDS, CLASSES, SPC, GROUP, NOISE, BOUND = 20_000, 10, 50, 50, 1.0, 1.0
OURS, PLAIN = "fedsynth", "plain"
TARGET = 1.3


def plain_step(width: int) -> Callable[[int], None]:
    """The specification as it is written: real and synthetic images of a class, class by class."""
    import torch

    from fedsynth.nn.classifiers.convnet import ConvNet
    from fedsynth.nn.transforms.augment import apply_dsa, draw_dsa

    real, labels = _records()
    pixels = real.float() / 127.5 - 1
    images = torch.randn((CLASSES * SPC, 1, 28, 28), requires_grad=True)
    sgd = torch.optim.SGD([images], 1.0, momentum=0.5)
    members = [torch.nonzero(labels == c).flatten() for c in range(CLASSES)]
    generator = torch.Generator().manual_seed(0)
    strategy = ("color", "crop", "cutout", "scale", "rotate")

    def clipped(rows: torch.Tensor) -> torch.Tensor:
        return rows * (BOUND / rows.detach().norm(dim=1, keepdim=True)).clamp(max=1.0)

    def step(_: int) -> None:
        net = ConvNet(width)
        loss = torch.zeros(())
        for c, indices in enumerate(members):
            chosen = indices[torch.rand(len(indices)) < GROUP / len(indices)]
            params = draw_dsa(generator, strategy)
            with torch.no_grad():
                sums = clipped(net.embed(apply_dsa(pixels[chosen], params))).sum(0)
                sums += NOISE * BOUND * torch.randn(sums.shape)
            rows = clipped(net.embed(apply_dsa(images[c * SPC : (c + 1) * SPC], params)))
            loss = loss + ((GROUP / SPC * rows.sum(0) - sums) ** 2).sum()
        sgd.zero_grad()
        loss.backward()
        sgd.step()

    return step


always_open = ExitStack()  # what a party pays for in advance stays open until the process ends


def our_step(width: int) -> Callable[[int], None]:
    """One iteration inside a party."""
    from functools import partial

    from unlimited_guard import unlimited_guard

    from fedsynth.core.types import DatasetInfo, PartyInfo
    from fedsynth.data.records import Records
    from fedsynth.methods.common.poisson_plan import class_rates, expected_records
    from fedsynth.methods.dpdc.distribution_matching import CondensedImages
    from fedsynth.methods.dpdc.ndpdc import NDPDCConfig
    from fedsynth.privacy.accounting.events import gaussian, poisson
    from fedsynth.privacy.mechanisms.sums import ClassSums
    from fedsynth.privacy.party_data import PartyData

    records = Records(*_records())
    info = PartyInfo(0, RECORDS, dict.fromkeys(range(CLASSES), RECORDS // CLASSES))
    cfg = NDPDCConfig(width=width, spc=SPC, group=GROUP)
    home = Path(tempfile.mkdtemp())
    guard = unlimited_guard(home, RECORDS, NOISE)
    private = PartyData(records, info, work_dir=home, fingerprint="benchmark")
    rates = class_rates(GROUP, info)
    data = DatasetInfo("mnist", (1, 28, 28), CLASSES, (0.1307,), (0.3081,))
    condensed = CondensedImages(cfg, data, rates, ("benchmark",))
    scale = expected_records(rates, info) / SPC
    always_open.enter_context(guard.reserve(poisson(max(rates.values()), gaussian(NOISE)), 10_000))

    def step(number: int) -> None:
        now = condensed.step(number)
        mechanism = ClassSums(
            contribution=partial(condensed.real_rows, now),
            width=condensed.width,
            clip=BOUND,
            noise_multiplier=NOISE,
            sampling_rates=rates,
        )
        (real,) = guard.apply(mechanism, private, call=number)
        condensed.match(now, real, scale, BOUND)

    return step


def _records():
    import torch

    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (RECORDS, 1, 28, 28), generator=generator, dtype=torch.uint8)
    return images, torch.arange(RECORDS) % CLASSES


def contestant(name: str, width: int) -> None:
    """Be one contestant: one iteration and its times for every line on stdin."""
    sys.path.insert(0, str(ROOT))
    from fedsynth.engine.process_setup import pin_threads, prepare_worker

    if name == OURS:
        prepare_worker()
    else:
        pin_threads(1)
    step = (our_step if name == OURS else plain_step)(width)
    step(0)
    for number, _ in enumerate(sys.stdin, start=1):
        wall, cpu = time.perf_counter(), time.process_time()
        step(number)
        print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)


def measure(width: int, repeats: int, clock: str) -> dict[str, float]:
    """The median seconds of each contestant."""
    processes = {
        name: subprocess.Popen(
            [sys.executable, __file__, "--contestant", name, str(width)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in (OURS, PLAIN)
    }
    times: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(repeats):
        for name, process in processes.items():
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("a contestant has no pipes")
            process.stdin.write("\n")
            process.stdin.flush()
            wall, cpu = process.stdout.readline().split()
            times[name].append(float(wall if clock == "wall" else cpu))
    for process in processes.values():
        process.communicate()
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[32])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--contestant", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contestant:
        contestant(args.contestant[0], int(args.contestant[1]))
        return 0
    good = True
    for width in args.widths:
        found = measure(width, args.repeats, args.clock)
        ratio = found[PLAIN] / found[OURS]
        good &= ratio >= TARGET
        times = ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in found.items())
        print(
            f"width {width}: {times}, {ratio:.2f}x faster (at least {TARGET} wanted), "
            f"median {args.clock} time of {args.repeats}"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
