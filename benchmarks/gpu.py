"""This program on a GPU beside the CPU, in one run: what a report of a fault on a GPU needs.

    python benchmarks/gpu.py [--device auto|cpu|cuda|cuda:N] [--repeats 5] [--methods NAME ...]

Prints the machine, then one line per piece of work: seconds on the CPU (one thread) and on the GPU,
medians of alternating repetitions; whether a repetition on the GPU gives the same bits; how far the
GPU's result is from the CPU's; and how often the CPU waited for the GPU, as torch counts it. Last,
whole runs of methods on both. `--device cpu` measures the CPU alone. Without a GPU, `auto` says so
in one line, and `cuda` also exits with 1.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence

import torch

import fedsynth
from fedsynth.core.device import AUTO, CPU, resolved_device
from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.train_classifier import build_network, fit_network
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.privacy.clipping import clipped_gradient_sum
from fedsynth.privacy.grid import noised
from fedsynth.privacy.noise import NoiseKey
from fedsynth.storage.environment import git_commit

INFO = DatasetInfo("digits", (1, 28, 28), 10, (0.13,), (0.31,))
METHODS = ("dp_merf", "dp_sgd", "psg")
Result = Sequence[torch.Tensor]
Work = Callable[[torch.device], Result]


def gradient(dtype: str, width: int, records: int) -> Work:
    """A clipped gradient sum of a ConvNet."""

    def work(device: torch.device) -> Result:
        generator = torch_generator("benchmark", "gradient")
        images = torch.randn(records, *INFO.shape, generator=generator).to(device)
        labels = torch.randint(0, INFO.classes, (records,), generator=generator).to(device)
        net = make_convnet(width, INFO.shape, INFO.classes, "benchmark").to(device)
        return clipped_gradient_sum(net, images, labels, clip=0.1, dtype=dtype)

    return work


def noise(numbers: int) -> Work:
    """The exact noise of a release of 20 tensors: drawn on the CPU, moved in one copy."""

    def work(device: torch.device) -> Result:
        values = [torch.ones(numbers // 20, device=device) for _ in range(20)]
        stream = NoiseKey.from_seed(0, "benchmark").stream("noise")
        return noised(values, sensitivity=1.0, noise_multiplier=1.0, stream=stream)

    return work


def classifier(width: int, passes: int) -> Work:
    """The training of an evaluation's ConvNet."""

    def work(device: torch.device) -> Result:
        config = EvaluationConfig(width=width, nets=1, max_images=passes)
        rules, generator = config.rules, torch_generator("benchmark", "classifier")
        released = SyntheticSet(
            torch.rand(50, *INFO.shape, generator=generator), torch.arange(50) % INFO.classes
        )
        net = build_network("convnet", INFO, INFO.classes, width, ("benchmark",)).to(device)
        fit_network(
            net,
            rules.normalize(released.images, INFO).to(device),
            released.labels.to(device),
            plan=config.schedule(len(released.images)),
            rules=rules,
            augmentations=rules.augmentations(INFO),
            generator=generator,
            dtype=config.dtype,
        )
        return [value.detach() for value in net.state_dict().values()]

    return work


def digest(values: Result) -> str:
    """A hash of all bits of a result."""
    sha = hashlib.sha256()
    for value in values:
        sha.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def timed(work: Work, device: torch.device) -> tuple[float, Result]:
    """The seconds of a piece of work, until the device is done, and its result."""
    start = time.perf_counter()
    result = work(device)
    if device.type != CPU:
        torch.cuda.synchronize(device)
    return time.perf_counter() - start, result


def waits(work: Work, device: torch.device) -> int:
    """The number of times the CPU waited for the GPU in a piece of work, by torch's debug mode."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work(device)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught)


def compare(name: str, work: Work, device: torch.device, repeats: int) -> None:
    """Print one line about a piece of work."""
    cpu, seconds = torch.device(CPU), {CPU: [], device.type: []}
    results: dict[str, list[Result]] = {CPU: [], device.type: []}
    devices = [cpu] if device.type == CPU else [cpu, device]
    for one in devices:
        work(one)  # the first call sets up kernels
    for _ in range(repeats):
        for one in devices:
            took, result = timed(work, one)
            seconds[one.type].append(took)
            results[one.type] = [*results[one.type][-1:], result]
    on_cpu = statistics.median(seconds[CPU])
    if device.type == CPU:
        print(f"{name:34} {on_cpu:9.4f}", flush=True)
        return
    on_gpu = statistics.median(seconds[device.type])
    same = "yes" if len({digest(result) for result in results[device.type]}) == 1 else "NO"
    pairs = zip(results[CPU][-1], results[device.type][-1], strict=True)
    off = max(float((a - b.cpu()).abs().max() / a.abs().max().clamp_min(1e-30)) for a, b in pairs)
    print(
        f"{name:34} {on_cpu:9.4f} {on_gpu:9.4f} {on_cpu / on_gpu:7.1f} {same:>9} {off:9.1e} "
        f"{waits(work, device):6}",
        flush=True,
    )


def whole_run(method: str, device: torch.device) -> None:
    """Print the seconds and the accuracy of a small run of a method."""
    for name in dict.fromkeys((CPU, str(device))):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            try:
                run = fedsynth.run(
                    "split_mnist",
                    method=method,
                    data="shapes",
                    preset="smoke",
                    epsilon=10.0,
                    noise_seed=1,
                    engine="inprocess",
                    device=name,
                    out=f"{folder}/run",
                    evaluation={"width": 32, "nets": 1, "max_images": 4000},
                )
                last = run.frame().query("metric == 'accuracy_mean'").iloc[-1]["value"]
                outcome = f"accuracy {last:.3f}"
            except Exception as error:  # the report of a fault is what this program is for
                outcome = f"failed: {type(error).__name__}: {error}"
        print(f"{method:34} {name:8} {time.perf_counter() - start:8.1f} s  {outcome}", flush=True)


def machine(device: torch.device) -> None:
    """Print everything that decides the bits of a result."""
    commit = git_commit() or {}
    changed = " (changed)" if commit.get("changed") else ""
    print(f"fedsynth {fedsynth.__version__}, commit {commit.get('commit', 'unknown')}{changed}")
    print(f"{platform.platform()}, python {platform.python_version()}, torch {torch.__version__}")
    if device.type == CPU:
        return
    about = torch.cuda.get_device_properties(device)
    bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    print(f"{about.name}, capability {about.major}.{about.minor}, {about.total_memory >> 20} MiB")
    print(f"CUDA {torch.version.cuda}, HIP {torch.version.hip}, bfloat16 {bfloat16}")
    print(
        f"cuDNN {torch.backends.cudnn.version()}, "
        f"deterministic {torch.are_deterministic_algorithms_enabled()}, "
        f"TF32 {torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32}"
    )


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default=AUTO)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--records", type=int, default=256)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    given = parser.parse_args(arguments)
    try:
        device = resolved_device(given.device)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if given.device == AUTO and device.type == CPU:
        print(f"no GPU: torch {torch.__version__} sees none. --device cpu measures the CPU alone.")
        return 0
    prepare_worker()
    machine(device)
    sides = "" if device.type == CPU else "     GPU   ratio same bits       off  waits"
    print(f"\n{'seconds':34}       CPU {sides}")
    width, records = given.width, given.records
    compare("clipped gradient, float32", gradient("float32", width, records), device, given.repeats)
    compare("clipped gradient, auto", gradient("auto", width, records), device, given.repeats)
    compare("exact noise", noise(4000 * records), device, given.repeats)
    compare("evaluation's ConvNet", classifier(width, 16 * records), device, min(2, given.repeats))
    print()
    for method in given.methods:
        whole_run(method, device)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
