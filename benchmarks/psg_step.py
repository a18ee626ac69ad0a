"""Cost of a published PSG schedule, and of its three steps: this code against the plain forms.

    python benchmarks/psg_step.py [--widths 128 32] [--images 20 100] [--rounds 7] [--runs 200]

The steps are the gradient of 256 records clipped per record (`gradient`), the update of the images
(`match`) and a step of the inner training on the images (`train`). The plain forms are vmap(grad),
automatic differentiation twice, and once. All take turns in one process with one thread; medians of
processor time and ratios are printed, and then the core-hours of R runs of the published schedule
(T=10, K=10, J=50 at ten images per class) by each form. Data are random numbers.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from fedsynth.core.types import DatasetInfo
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.methods.psg.gradient_matching import MatchingConfig, row_cosine_distance
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.nn.matching_gradient.gradient import by_autograd, matching_gradient
from fedsynth.nn.per_example.gradients import loss_and_gradients
from fedsynth.privacy.clipping import clipped_gradient_sum

RECORDS, CLIP = 256, 0.1
INFO = DatasetInfo("random", (1, 28, 28), 10, (0.1307,), (0.3081,))
PLAIN, FLOAT32, BFLOAT16 = "plain", "float32", "bfloat16"
SCHEDULES = {  # forms of gradient, match and train
    "all plain": (PLAIN, PLAIN, PLAIN),
    "as it was (matching by autograd)": (FLOAT32, PLAIN, FLOAT32),
    "all float32": (FLOAT32, FLOAT32, FLOAT32),
    "images in bfloat16 (the default there)": (FLOAT32, BFLOAT16, BFLOAT16),
    "gradient too (dtype=bfloat16)": (BFLOAT16, BFLOAT16, BFLOAT16),
}
Steps = dict[str, dict[str, Callable[[], object]]]


def steps(width: int, images: int) -> Steps:
    """The three steps, each in all forms."""
    generator = torch.Generator().manual_seed(0)
    net = make_convnet(width, INFO, 10, "benchmark")
    records = torch.randn((RECORDS, 1, 28, 28), generator=generator)
    x = torch.randn((images, 1, 28, 28), generator=generator)
    labels, y = torch.arange(RECORDS) % 10, torch.arange(images) % 10
    real = [torch.randn(p.shape, generator=generator) for p in net.parameters() if p.dim() >= 2]
    distance = functools.partial(row_cosine_distance, real)
    parameters = list(net.parameters())

    def plain_train() -> object:
        return torch.autograd.grad(F.cross_entropy(net(x), y), parameters)

    forms = {FLOAT32: None, BFLOAT16: torch.bfloat16}
    result: Steps = {"gradient": {}, "match": {}, "train": {}}
    result["gradient"][PLAIN] = lambda: plain_gradient(net, records, labels)
    result["match"][PLAIN] = lambda: by_autograd(net, x, y, distance)
    result["train"][PLAIN] = plain_train
    for name, compute in forms.items():
        result["gradient"][name] = functools.partial(
            clipped_gradient_sum, net, records, labels, clip=CLIP, dtype=name
        )
        result["match"][name] = functools.partial(
            matching_gradient, net, x, y, distance, compute=compute
        )
        result["train"][name] = functools.partial(loss_and_gradients, net, x, y, compute=compute)
    return result


def plain_gradient(net: torch.nn.Module, records: torch.Tensor, labels: torch.Tensor) -> None:
    """The clipped sum by vmap(grad), 32 records at a time."""
    weights = {name: p.detach() for name, p in net.named_parameters()}

    def loss(at: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = torch.func.functional_call(net, at, (x.unsqueeze(0),))
        return F.cross_entropy(logits, y.unsqueeze(0))

    per_record = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    totals = {name: torch.zeros_like(p) for name, p in weights.items()}
    for x, y in zip(records.split(32), labels.split(32), strict=True):
        rows = per_record(weights, x, y)
        squares = torch.stack([r.flatten(1).square().sum(1) for r in rows.values()]).sum(0)
        factors = (CLIP / squares.sqrt()).clamp(max=1)
        for name, r in rows.items():
            totals[name] += torch.einsum("n,n...->...", factors, r)


def measure(forms: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median processor seconds of each form, measured in turns."""
    taken: dict[str, list[float]] = {name: [] for name in forms}
    for number in range(rounds + 1):
        for name, run in forms.items():
            begun = time.process_time()
            run()
            if number:  # the first one imports and allocates
                taken[name].append(time.process_time() - begun)
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    """Print the table and the core-hours."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 32])
    parser.add_argument("--images", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=200)
    args = parser.parse_args()
    prepare_worker()
    outer, inner = MatchingConfig().outer_inner
    for width in args.widths:
        for images in args.images:
            print(f"width {width}, {images} images")
            seconds = {s: measure(f, args.rounds) for s, f in steps(width, images).items()}
            for step, found in seconds.items():
                times = ", ".join(f"{name} {s * 1e3:.1f} ms" for name, s in found.items())
                ratios = ", ".join(f"{found[PLAIN] / found[n]:.2f}" for n in (FLOAT32, BFLOAT16))
                print(f"  {step:8} {times}; times faster: {ratios}")
            trained = args.runs * (outer - 1) * inner
            for name, forms in SCHEDULES.items():
                gradient, match, train = (
                    seconds[step][form] for step, form in zip(seconds, forms, strict=True)
                )
                total = args.runs * outer * 10 * (gradient + match) + trained * train
                print(f"  {args.runs} runs, one party, {name}: {total / 3600:.2f} core-hours")


if __name__ == "__main__":
    main()
