"""A training step and a feature pass of PoolNet: weights channels last against channels first.

    python benchmarks/pool_net_step.py [repeats]

Both layouts in turn, in one process of one thread; prints CPU milliseconds (median) and the ratio.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch.nn import functional

from fedsynth.engine.process_setup import tune_malloc
from fedsynth.nn.classifiers.poolnet import BATCH, INFERENCE_BATCH, LEARNING_RATE, PoolNet

LAYOUTS = {"first": torch.contiguous_format, "last": torch.channels_last}
STEPS = 10


def net_of(layout: torch.memory_format) -> PoolNet:
    """The net of the laptop presets, its weights laid out so."""
    net = PoolNet(32, 10, 28)
    for weight in net.parameters():
        if weight.dim() == 4:
            weight.data = torch.empty_like(weight.data, memory_format=layout).copy_(weight.data)
    return net


def trained(net: PoolNet) -> None:
    """`STEPS` steps on one batch."""
    optimiser = torch.optim.AdamW(net.parameters(), LEARNING_RATE, fused=True)
    images, labels = torch.rand(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))
    net.train()
    for _ in range(STEPS):
        optimiser.zero_grad(set_to_none=True)
        functional.cross_entropy(net(images), labels).backward()
        optimiser.step()


def embedded(net: PoolNet) -> None:
    """The features of `STEPS` batches."""
    net.embed(torch.rand(STEPS * INFERENCE_BATCH, 1, 28, 28))


def milliseconds(work: Callable[[PoolNet], None], net: PoolNet) -> float:
    """CPU time per step."""
    begun = time.process_time()
    work(net)
    return (time.process_time() - begun) * 1e3 / STEPS


def main(repeats: int) -> None:
    """Measure both kinds of work in both layouts and print the table."""
    tune_malloc()  # as every run does
    torch.set_num_threads(1)
    for name, work in (("step", trained), ("features", embedded)):
        nets = {key: net_of(layout) for key, layout in LAYOUTS.items()}
        times: dict[str, list[float]] = {key: [] for key in nets}
        for _ in range(repeats + 1):
            for key, net in nets.items():
                times[key].append(milliseconds(work, net))
        first, last = (statistics.median(times[key][1:]) for key in ("first", "last"))
        print(f"{name:>8}: first {first:6.1f} ms, last {last:6.1f} ms, {first / last:.2f} times")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
