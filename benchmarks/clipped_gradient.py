"""Speed and correctness of the clipped gradient sum, compared with Opacus in one run.

    python benchmarks/clipped_gradient.py [--widths 32 64 128] [--repeats 7] [--clock wall|cpu]
    python benchmarks/clipped_gradient.py --network opacus_cnn --batch 512 [...]

Each implementation runs in its own fresh process with one thread and its own memory settings.
Repetitions alternate between the implementations and medians are compared, so that a busy machine
slows all of them alike. Errors are relative, against one record at a time in float64.
"""

from __future__ import annotations

import argparse
import copy
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLIP = 0.1
CHECKED = 16  # records; with many, one of them soon sits on a kink of the loss to rounding
OURS32, OURS16 = "fedsynth float32", "fedsynth bfloat16"
HOOKS, HOOKS_TUNED, GHOST = "Opacus", "Opacus, malloc tuned", "Opacus ghost clipping, malloc tuned"
PLAIN = "no privacy, autograd float32, malloc tuned"
PLAIN_OURS = "no privacy, fedsynth float32"
CONTESTANTS = (OURS32, OURS16, HOOKS, HOOKS_TUNED, GHOST, PLAIN, PLAIN_OURS)
TARGETS = (  # at width, contestant, rival, how many times faster at least
    (128, OURS16, HOOKS, 3.0),
    (128, OURS16, HOOKS_TUNED, 1.6),
    (128, OURS32, HOOKS_TUNED, 1.1),
    (128, OURS16, PLAIN, 1 / 1.1),
    (64, OURS16, PLAIN, 1 / 1.1),
    (32, OURS16, PLAIN, 1 / 1.1),
)


def contestant(name: str, network: str, width: int, batch: int) -> None:
    """Be one contestant: one gradient and its times for every line on stdin."""
    sys.path.insert(0, str(ROOT))
    import torch

    from fedsynth.core.randomness import default_seed, torch_generator
    from fedsynth.engine.process_setup import pin_threads, prepare_worker
    from fedsynth.nn.classifiers.registry import classifier

    if name == HOOKS:
        pin_threads(1)
    else:
        prepare_worker()
    warnings.simplefilter("ignore")  # Opacus's hooks make torch warn at every step
    with default_seed("benchmark"):
        model = classifier(network, (1, 28, 28), 10, width)
    reference = copy.deepcopy(model)
    generator = torch_generator("benchmark", "data")
    images = torch.randn(batch, 1, 28, 28, generator=generator)
    labels = torch.randint(0, 10, (batch,), generator=generator)
    step = _step(name, model, batch)
    few = images[:CHECKED], labels[:CHECKED]
    found = torch.cat([part.double().flatten() for part in step(*few)])
    expected = _naive(reference, *few, clip="no privacy" not in name)
    for _ in range(2):
        step(images, labels)
    print(float((found - expected).norm() / expected.norm()), flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        step(images, labels)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(wall, cpu, peak / 1024, flush=True)


def _step(name: str, model, batch: int):
    import torch
    import torch.nn.functional as F

    from fedsynth.nn.per_example.gradients import loss_and_gradients
    from fedsynth.privacy.clipping import clipped_gradient_sum

    weights = list(model.parameters())
    if name in {OURS32, OURS16}:
        dtype = name.rsplit(maxsplit=1)[-1]
        return lambda x, y: clipped_gradient_sum(model, x, y, clip=CLIP, dtype=dtype)
    if name == PLAIN:
        return lambda x, y: torch.autograd.grad(F.cross_entropy(model(x), y), weights)
    if name == PLAIN_OURS:
        return lambda x, y: loss_and_gradients(model, x, y)[1]
    return (_opacus_ghost if name == GHOST else _opacus_hooks)(model, batch)


def _opacus_hooks(model, batch: int):
    import torch
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    hooked = GradSampleModule(model)
    optimizer = DPOptimizer(
        torch.optim.SGD(hooked.parameters(), lr=0.1),
        noise_multiplier=0.0, max_grad_norm=CLIP, expected_batch_size=batch,
    )  # fmt: skip
    criterion = torch.nn.CrossEntropyLoss()

    return _opacus_step(hooked, optimizer, criterion, optimizer.clip_and_accumulate)


def _opacus_step(hooked, optimizer, criterion, accumulate):
    def step(x, y):
        optimizer.zero_grad()
        criterion(hooked(x), y).backward()
        accumulate()
        return [p.summed_grad for p in hooked.parameters()]

    return step


def _opacus_ghost(model, batch: int):
    import torch
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    hooked = GradSampleModuleFastGradientClipping(
        model, max_grad_norm=CLIP, use_ghost_clipping=True, loss_reduction="mean"
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(hooked.parameters(), lr=0.1),
        noise_multiplier=0.0, max_grad_norm=CLIP, expected_batch_size=batch,
    )  # fmt: skip
    criterion = DPLossFastGradientClipping(
        hooked, optimizer, torch.nn.CrossEntropyLoss(), loss_reduction="mean"
    )

    return _opacus_step(hooked, optimizer, criterion, optimizer.accumulate)


def _naive(model, images, labels, clip: bool):
    import torch
    import torch.nn.functional as F

    model = model.double()
    weights = list(model.parameters())
    total = torch.zeros(sum(w.numel() for w in weights), dtype=torch.float64)
    for x, y in zip(images.double().split(1), labels.split(1), strict=True):
        found = torch.autograd.grad(F.cross_entropy(model(x), y), weights)
        gradient = torch.cat([part.flatten() for part in found])
        total += gradient * (min(1.0, CLIP / float(gradient.norm())) if clip else 1 / CHECKED)
    return total


class Runner:
    """A contestant's process, asked for one repetition at a time."""

    def __init__(self, name: str, network: str, width: int, batch: int) -> None:
        command = [sys.executable, __file__, "--contestant", name, "--widths", str(width)]
        command += ["--network", network, "--batch", str(batch)]
        environment = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.error = float(self._line()[0])
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def repeat(self) -> None:
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        wall, cpu, self.peak = map(float, self._line())
        self.wall.append(wall * 1e3)
        self.cpu.append(cpu * 1e3)

    def stop(self) -> None:
        self.process.communicate()

    def _line(self) -> list[str]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a contestant failed: see its message above")
        return line.split()


def measure(network: str, width: int, batch: int, repeats: int) -> dict[str, Runner]:
    runners = {name: Runner(name, network, width, batch) for name in CONTESTANTS}
    for _ in range(repeats):
        for runner in runners.values():
            runner.repeat()
    for runner in runners.values():
        runner.stop()
    return runners


def report(title: str, width: int, runners: dict[str, Runner], clock: str) -> bool:
    times = {name: statistics.median(getattr(r, clock)) for name, r in runners.items()}
    print(f"\n{title}, one thread, median {clock} time")
    print(f"{'':44}{'ms':>8}{'error':>10}{'MB':>7}{'x Opacus':>10}{'x tuned':>9}{'x plain':>9}")
    for name, runner in runners.items():
        ratios = [times[rival] / times[name] for rival in (HOOKS, HOOKS_TUNED, PLAIN)]
        row = f"{name:44}{times[name]:8.1f}{runner.error:10.1e}{runner.peak:7.0f}"
        print(row + f"{ratios[0]:10.2f}{ratios[1]:9.2f}{ratios[2]:9.2f}")
    held = True
    for at, name, rival, least in TARGETS:
        if at == width:
            ratio = times[rival] / times[name]
            held &= ratio >= least
            verdict = "holds" if ratio >= least else "MISSED"
            print(f"  target {verdict}: {name} is {ratio:.2f}x {rival} (at least {least:.2f})")
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--network", choices=("convnet", "opacus_cnn"), default="convnet")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--contestant", choices=CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        contestant(options.contestant, options.network, options.widths[0], options.batch)
        return
    held = []
    for width in options.widths if options.network == "convnet" else [0]:
        runners = measure(options.network, width, options.batch, options.repeats)
        what = f"width {width}" if width else options.network
        held.append(report(f"{what}, batch {options.batch}", width, runners, options.clock))
    raise SystemExit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
