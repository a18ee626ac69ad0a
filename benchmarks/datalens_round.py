"""CPU time of a round of DataLens's teachers, against one teacher after another.

    python benchmarks/datalens_round.py [--teachers 32] [--repeats 5] [--dtype bfloat16]

A round at the published sizes: 15 real and 15 generated images per teacher, two updates of Adam,
the gradient of 15 shared images, and signs of its 200 largest coordinates. The plain side is the
published discriminator with PyTorch's layers, autograd and Adam, one teacher at a time, in float32;
ours is the round of a party, with training and counting. The time to generate images is left out on
both sides: it is the same for 32 teachers as for 4000. Both run in this process with one thread and
its memory settings, in turns; medians of CPU time are compared. The data are random numbers, as the
time does not depend on what an image shows.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.data.records import Records
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.methods.pate.datalens.compression import compress_votes
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.generator import StudentGenerator
from fedsynth.methods.pate.datalens.parameters import DataLensParameters
from fedsynth.methods.pate.datalens.teachers import Query, TeacherEnsemble
from fedsynth.methods.pate.record_assignment import RecordAssignment

IMAGES, CLASSES, TOP = 15, 10, 200
TARGET = 3.0


class Discriminator(nn.Module):
    """The published teacher: labels beside the input of every layer, batch norm over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1 + CLASSES, 11, 5, stride=2)
        self.second = nn.Conv2d(11 + CLASSES, 42, 5, stride=2)
        self.second_norm = nn.BatchNorm2d(42)
        self.third = nn.Linear(42 * 49 + CLASSES, 256)
        self.third_norm = nn.BatchNorm1d(256)
        self.fourth = nn.Linear(256 + CLASSES, 1)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Logits of [n, 1, 28, 28]."""
        one_hot = F.one_hot(labels, CLASSES).float()
        maps = one_hot[:, :, None, None]

        def same(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
            x = torch.cat([x, maps.expand(-1, -1, *x.shape[2:])], 1)
            return layer(F.pad(x, (1, 2, 1, 2)))

        x = F.leaky_relu(same(self.first, images), 0.2)
        x = F.leaky_relu(self.second_norm(same(self.second, x)), 0.2).flatten(1)
        x = F.leaky_relu(self.third_norm(self.third(torch.cat([x, one_hot], 1))), 0.2)
        return self.fourth(torch.cat([x, one_hot], 1)).squeeze(1)


def plain_rounds(teachers: int) -> Callable[[], None]:
    """One teacher after another."""
    nets = [Discriminator() for _ in range(teachers)]
    adams = [torch.optim.Adam(net.parameters(), 1e-3, betas=(0.5, 0.999)) for net in nets]
    real, labels = _records(teachers)
    pixels = real.float().div(255).split(IMAGES)
    made = torch.rand(IMAGES, 1, 28, 28)
    ones, zeros = torch.ones(IMAGES), torch.zeros(IMAGES)
    bce = F.binary_cross_entropy_with_logits

    def a_round() -> None:
        votes = torch.zeros(IMAGES, 784)
        for net, adam, own, classes in zip(nets, adams, pixels, labels.split(IMAGES), strict=True):
            for _ in range(2):
                adam.zero_grad()
                (bce(net(own, classes), ones) + bce(net(made, classes), zeros)).backward()
                adam.step()
            images = made.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(bce(net(images, classes), ones), images)
            descent = -gradient.flatten(1)
            chosen = descent.abs().topk(TOP, dim=1).indices
            votes.scatter_add_(1, chosen, descent.gather(1, chosen).sign())

    return a_round


def our_rounds(teachers: int, dtype: str) -> Callable[[], None]:
    """A party's round."""
    records = Records(*_records(teachers))
    count = len(records.labels)
    info = PartyInfo(0, count, dict.fromkeys(range(CLASSES), count // CLASSES))
    data, classes = DatasetInfo("mnist", (1, 28, 28), CLASSES, (0.13,), (0.31,)), range(CLASSES)
    stage = Stage(data, 0, 1, (info,), tuple(classes), tuple(classes))
    cfg = DataLensConfig(teachers=teachers, entries=TOP, dtype=dtype)
    parameters = DataLensParameters.of(cfg, stage, Budget(1.0, 1e-5))
    cpu = torch.device("cpu")
    ensemble = TeacherEnsemble(
        records,
        RecordAssignment.of(records, teachers, repr((0,))),
        cfg=cfg,
        parameters=parameters,
        compression=lambda gradients, number, first: compress_votes(
            cfg, parameters, gradients, torch_generator("votes", number, first)
        ),
        stage=stage,
        key=(0,),
        dtype=getattr(torch, dtype),
        device=cpu,
    )
    ensemble.initialise()
    ensemble.threads = 1
    student = StudentGenerator(cfg, parameters, stage, ("benchmark",), cpu)
    like = torch.empty(0, dtype=ensemble.dtype)
    query = Query.of(0, student.query(0, 0).arrays, like)

    def a_round() -> None:
        ensemble.run_round(dataclasses.replace(query, number=ensemble.rounds_done))

    a_round()  # pretraining
    return a_round


def _records(teachers: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    size = (teachers * IMAGES, 1, 28, 28)
    images = torch.randint(0, 256, size, generator=generator, dtype=torch.uint8)
    return images, torch.arange(len(images)) % CLASSES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--teachers", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    args = parser.parse_args()
    prepare_worker()
    sides = {"plain": plain_rounds(args.teachers), "ours": our_rounds(args.teachers, args.dtype)}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(args.repeats + 1):
        for name, a_round in sides.items():
            begun = time.process_time()
            a_round()
            if repeat:
                times[name].append((time.process_time() - begun) / args.teachers * 1e3)
    plain, ours = (statistics.median(times[name]) for name in ("plain", "ours"))
    ratio = plain / ours
    print(
        f"{args.teachers} teachers, {args.dtype}: plain {plain:.1f} ms, ours {ours:.1f} ms of CPU "
        f"per teacher and round, {ratio:.2f}x faster (at least {TARGET} wanted), "
        f"median of {args.repeats}"
    )
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
