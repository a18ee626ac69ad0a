"""Cost of a published GS-WGAN schedule: this code against its plain form.

    python benchmarks/gs_wgan_step.py [--rounds 3] [--warm 2000] [--generator resnet]

The plain form doubles the sides of an image before it convolves, in float32, and draws the images
of an upstream gradient twice, at the party and at the server. All parts of a step take turns in one
process with one thread, on 32 random images at the published sizes; medians of processor time are
printed, the seconds of a step, and the core-hours of the published schedule: 1,000 subsets with
their warm starts, and 20,000 steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsynth.core.types import DatasetInfo
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.methods.gs_wgan.generator import GeneratorTrainer, draw_inputs, new_generator
from fedsynth.nn.compute_dtype import autocast
from fedsynth.nn.gan.critics import ProjectionCritic, upstream_gradients, wasserstein_loss
from fedsynth.nn.gan.resnet_generator import ResNetGenerator

INFO = DatasetInfo("random", (1, 28, 28), 10, (0.1307,), (0.3081,))
BATCH, CRITIC_STEPS, SUBSETS, STEPS = 32, 5, 1000, 20_000
PLAIN, FLOAT32, BFLOAT16 = "plain", "float32", "bfloat16"


class DoubledFirst(nn.Module):
    """A convolution of the doubled image, written as such."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.convolution = convolution

    def on_doubled(self, x: Tensor) -> Tensor:
        """The convolution of x with its pixels repeated in squares."""
        return self.forward(x)

    def forward(self, x: Tensor) -> Tensor:
        """The same."""
        result: Tensor = self.convolution(F.interpolate(x, scale_factor=2, mode="nearest"))
        return result


def generator(kind: str, form: str) -> nn.Module:
    """The published generator in one of the forms."""
    net = new_generator(kind, 256, 10, 10, INFO, "benchmark")
    if form == PLAIN and isinstance(net, ResNetGenerator):
        for block in net.blocks:
            block.first = DoubledFirst(block.first)
    return net


def parts(kind: str, form: str) -> dict[str, Callable[[], object]]:
    """The parts of a step."""
    dtype = FLOAT32 if form == PLAIN else form
    net, critic = generator(kind, form), ProjectionCritic(64, 10, INFO.shape)
    adam = torch.optim.Adam(critic.parameters(), 1e-4, betas=(0.5, 0.9))
    trainer = GeneratorTrainer(generator(kind, form), learning_rate=1e-4, ema_decay=0.999,
                               dtype=dtype)  # fmt: skip
    latents, labels = draw_inputs(BATCH, 10, torch.arange(10), ("benchmark",))
    real, fake = torch.rand(2, BATCH, *INFO.shape)
    mix = torch.rand(BATCH)

    def draw() -> object:
        with torch.no_grad(), autocast(dtype):
            return net(latents, labels)

    def train() -> None:
        with autocast(dtype):
            loss = wasserstein_loss(critic, real, fake, labels, mix, penalty=10.0, drift=0.001)
        adam.zero_grad()
        loss.backward()
        adam.step()

    def upstream() -> object:
        with autocast(dtype):
            return upstream_gradients(critic, fake, labels)

    def generator_step() -> None:
        trainer.step(1, trainer.images(latents, labels), fake)

    return {"draw": draw, "train": train, "upstream": upstream, "generator": generator_step}


def main() -> None:
    """Print the table and the core-hours."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=2000)
    parser.add_argument("--generator", choices=("resnet", "dcgan"), default="resnet")
    args = parser.parse_args()
    prepare_worker()
    forms = {form: parts(args.generator, form) for form in (PLAIN, FLOAT32, BFLOAT16)}
    taken: dict[tuple[str, str], list[float]] = {}
    for number in range(args.rounds + 1):
        for part in forms[PLAIN]:
            for form, runs in forms.items():
                begun = time.process_time()
                runs[part]()
                if number:  # the first one imports and allocates
                    taken.setdefault((form, part), []).append(time.process_time() - begun)
    baseline = 0.0
    for form, runs in forms.items():
        seconds = {part: statistics.median(taken[form, part]) for part in runs}
        warm = CRITIC_STEPS * (seconds["draw"] + seconds["train"])
        warm += seconds["upstream"] + seconds["generator"]
        step = warm + (seconds["draw"] if form == PLAIN else 0.0)
        baseline = baseline or step
        hours = (SUBSETS * args.warm * warm + STEPS * step) / 3600
        print(f"{form:9}", ", ".join(f"{part} {s * 1e3:.0f} ms" for part, s in seconds.items()))
        print(
            f"{'':9} step {step:.2f} s ({baseline / step:.2f} times faster), {STEPS:,} steps "
            f"{STEPS * step / 3600:.1f} core-hours, with {args.warm:,} warm steps of {SUBSETS:,} "
            f"critics {hours:,.0f}"
        )


if __name__ == "__main__":
    main()
