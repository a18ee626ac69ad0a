"""Readings of "TopAgg for DP-SGD" (Wang et al. 2021, DataLens), compared on a hold-out of MNIST.

    python benchmarks/topagg_readings.py --reading norm_per_tensor --seeds 0 1 2

trains the small network of Opacus's example with gradients that are reduced by one reading of the
paper's algorithm, on 55,000 training records, and prints the accuracy on the other 5,000. Not
private: some readings are not, and noise comes from an ordinary generator. To save time a step
draws `1 / --part` of its records; noise is that of the whole batch and outweighs the difference by
far. The defaults are the paper's settings for k = .6 at epsilon .2 (505 steps by Renyi orders).
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor

from fedsynth.data.registry import load
from fedsynth.nn.classifiers.opacus_cnn import build
from fedsynth.privacy.clipping import record_gradients
from fedsynth.privacy.sparsification import Sparsification, largest

HOLDOUT, MEAN, STD, CHUNK = 5000, 0.1307, 0.3081, 64
READINGS = {
    "none": "no reduction",
    "norm": "squares up to k |g|^2, over all layers",
    "norm_per_tensor": "squares up to k |g|^2, in each tensor by itself",
    "pseudo_code": "squares up to k |g|, as the pseudo-code is printed",
    "pseudo_code_per_tensor": "the same in each tensor by itself",
    "norm_before_clipping": "squares up to k |g|^2, then clipped to C",
    "target_before_clipping": "clipped, squares up to k times those before clipping",
    "norm_of_sum": "the sum of clipped gradients, squares up to k |sum|^2",
}


def up_to(rows: Tensor, target: Tensor) -> Tensor:
    """Rows with only their largest coordinates, as long as their squares add up to `target`."""
    squares = rows.square()
    ordered = squares.sort(dim=1, descending=True).values
    fitting = (ordered.double().cumsum(1) <= target).sum(1, keepdim=True)
    first_left_out = ordered.gather(1, fitting.clamp_max(rows.shape[1] - 1))
    first_left_out[fitting == rows.shape[1]] = -1.0
    return rows * (squares > first_left_out)


def reduced(rows: Tensor, sizes: list[int], given: argparse.Namespace) -> Tensor:
    """Per-record gradients, clipped and reduced by the chosen reading."""

    def clipped(some: Tensor) -> Tensor:
        return some * (given.clip / (some.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1)

    rule, keep = given.reading, given.keep
    if rule == "norm_before_clipping":
        return clipped(largest(rows, Sparsification("norm", keep)))
    before, rows = rows.double().square().sum(1, keepdim=True), clipped(rows)
    if rule in ("norm", "norm_per_tensor"):
        return largest(rows, Sparsification(rule, keep), sizes)
    if rule == "target_before_clipping":
        return up_to(rows, keep * before)
    if rule == "pseudo_code":
        return up_to(rows, keep * rows.norm(dim=1, keepdim=True).double())
    if rule == "pseudo_code_per_tensor":
        parts = rows.split(sizes, dim=1)
        return torch.cat([up_to(p, keep * p.norm(dim=1, keepdim=True).double()) for p in parts], 1)
    return rows


def accuracy(seed: int, given: argparse.Namespace) -> float:
    """The accuracy on the hold-out after training by one seed."""
    images, labels = load("mnist", "train")
    images = images.float().div(255)
    images = images if given.raw else (images - MEAN) / STD
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(99))
    held, own = order[:HOLDOUT], order[HOLDOUT:]
    torch.manual_seed(seed)
    net = build((1, 28, 28), 10, 0)
    weights = list(net.parameters())
    sizes = [p.numel() for p in weights]
    generator = torch.Generator().manual_seed(seed + 1000)
    noise = (given.keep**0.5 if given.factor is None else given.factor) * given.noise * given.clip
    for _ in range(given.steps):
        drawn = torch.rand(len(own), generator=generator) < given.batch / given.part / len(own)
        batch = own[drawn]
        rows_of = record_gradients(net, (1, 28, 28))
        total = torch.zeros(sum(sizes))
        for x, y in zip(images[batch].split(CHUNK), labels[batch].split(CHUNK), strict=True):
            total += reduced(rows_of(x, y), sizes, given).sum(0)
        total *= given.part / given.batch
        if given.reading == "norm_of_sum":
            total = largest(total[None], Sparsification("norm", given.keep))[0]
        total += torch.randn(total.shape, generator=generator) * noise / given.batch
        with torch.no_grad():
            for weight, change in zip(weights, total.split(sizes), strict=True):
                weight.sub_(change.view_as(weight), alpha=given.learning_rate)
    with torch.no_grad():
        return float((net(images[held]).argmax(1) == labels[held]).float().mean())


def main() -> None:
    """Print the accuracy per seed, mean, deviation and processor time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    text = "\n".join(f"{name}: {means}" for name, means in READINGS.items())
    parser.add_argument("--reading", choices=READINGS, default="norm", help=text)
    parser.add_argument("--keep", type=float, default=0.6, help="k")
    parser.add_argument("--clip", type=float, default=12.0, help="C")
    parser.add_argument("--noise", type=float, default=3.6, help="sigma")
    parser.add_argument("--factor", type=float, help="of noise; default: the root of k")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--part", type=int, default=16, help="1 / share of the batch drawn")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=503)
    parser.add_argument("--raw", action="store_true", help="pixels in [0, 1], not standardised")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    given = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.process_time()
    found = [accuracy(seed, given) for seed in given.seeds]
    spread = f" +- {statistics.stdev(found):.4f}" if len(found) > 1 else ""
    print(f"{given.reading}: {statistics.mean(found):.4f}{spread} {[round(a, 4) for a in found]}")
    print(f"{time.process_time() - begun:.0f} s of processor time")


if __name__ == "__main__":
    main()
