"""How long a plan takes here: each kind of work is timed once, on random numbers, never on data."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable

import torch
from torch import nn

from fedsynth.core.enums import DataKind
from fedsynth.core.plan import Plan
from fedsynth.core.randomness import default_seed
from fedsynth.core.types import ComputeCost, DatasetInfo
from fedsynth.engine.process_setup import pin_threads
from fedsynth.methods.psg.gradient_matching import MatchedImages, MatchingConfig
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.nn.classifiers.registry import classifier
from fedsynth.nn.ensembles.strided_conv import windows
from fedsynth.nn.ensembles.teacher import TeacherStack, adam_step
from fedsynth.nn.ensembles.teacher_config import TeacherConfig, initial_parameters
from fedsynth.nn.per_example.gradients import loss_and_gradients
from fedsynth.nn.transforms.scattering import scattering
from fedsynth.privacy.clipping import clipped_gradient_sum

PROBE = 32  # records, or teachers, a probe handles; time is taken to grow with the batch
REPEATS = 3


def seconds(plan: Plan) -> float:
    """Core-seconds of everything in the plan, parties and curator."""
    work = [*plan.server_cost, *(w for party in plan.parties for w in party.cost)]
    return work_seconds(work, plan.stage.data)


def work_seconds(work: Iterable[ComputeCost], data: DatasetInfo) -> float:
    """Core-seconds of this work on one core of this machine."""
    return sum(w.times * (w.batch / PROBE) * _probe(w.kind, w.width, data) for w in work if w.times)


@functools.cache
def _probe(kind: str, width: int, data: DatasetInfo) -> float:
    """Seconds one unit of work takes for `PROBE` records: the best of a few."""
    pin_threads(1)
    if kind == "teachers":
        return _best(_teachers_round(width, data))
    if kind == "scattering":
        half = torch.full((PROBE, *data.shape), 0.5)
        return _best(lambda: scattering(half))
    if data.kind == DataKind.TABLE:
        with default_seed("probe"):
            net: nn.Module = classifier("mlp", data.shape, data.classes)
    else:
        net = make_convnet(width, data, data.classes, "probe")
    generator = torch.Generator().manual_seed(0)
    images = torch.randn((PROBE, *data.shape), generator=generator)
    labels = torch.arange(PROBE) % data.classes
    matched = MatchedImages(MatchingConfig(spc=PROBE, width=width), data, [0], ("probe",))
    real = [torch.ones_like(p) for p in net.parameters()]

    def gradient() -> None:
        clipped_gradient_sum(net, images, labels, clip=1.0)

    def match() -> None:
        matched.match(net, real)

    def train() -> None:
        loss_and_gradients(net, images, labels)

    return _best({"gradient": gradient, "match": match, "train": train}[kind])


def _best(run: Callable[[], object]) -> float:
    """Seconds of the fastest of a few runs."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def _teachers_round(width: int, data: DatasetInfo) -> Callable[[], None]:
    """A round of `PROBE` of DataLens's teachers with `width` hidden units, at the published number
    of images and in the published proportions."""
    shape = TeacherConfig(
        data.shape, data.classes, batch=15, channels=max(1, width // 8), hidden=width
    )
    generator = torch.Generator().manual_seed(0)
    flat = initial_parameters(shape, PROBE, generator, torch.bfloat16)
    slopes, first, second = torch.zeros(3, *flat.shape, dtype=flat.dtype)
    stack, grads = TeacherStack(shape, shape.views(flat, PROBE)), shape.views(slopes, PROBE)
    images = torch.rand((PROBE * 2 * shape.batch, *data.shape), generator=generator)
    rows = windows(images.bfloat16().permute(0, 2, 3, 1).contiguous()).unflatten(0, (PROBE, -1))
    labels = torch.arange(2 * shape.batch).expand(PROBE, -1) % data.classes

    def run() -> None:
        for step in range(2):
            stack.training_gradient(rows, labels, grads)
            adam_step(flat, slopes, first, second, step)
        stack.image_gradient(rows[:, : shape.batch], labels[:, : shape.batch])

    return run
