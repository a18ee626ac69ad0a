"""Estimates of the time that a plan takes on this machine, for `--plan`. Reads no data.

Each kind of work is timed on random numbers: steps of the methods at their own batch sizes, and a
few steps of every network's own training in the evaluation, augmentation included. Processor time
is measured, so that other programs do not count, in a process set up like a worker; the first call,
which imports modules and chooses kernels, is left out, and the median of the others is used.

Classical classifiers cannot be timed on random numbers, because the time of a fit depends on how
hard the data are. Their entry is the time measured on MNIST, in units of a training step of a small
ConvNet that is timed here; it is right within a factor of two or three.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
from torch import nn

from fedsynth.core.enums import DataKind
from fedsynth.core.plan import Plan
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.types import ComputeCost, DatasetInfo
from fedsynth.engine.process_setup import prepare_worker
from fedsynth.evaluation.classical_classifiers import CLASSICAL
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.image_quality import MAX_IMAGES_IF_CAPPED
from fedsynth.evaluation.protocols import TrainingSchedule
from fedsynth.evaluation.quality_metrics import GENERATED, REAL
from fedsynth.evaluation.scorer import BATCH as SCORER_BATCH
from fedsynth.evaluation.scorer import Scorer, ScorerConfig
from fedsynth.evaluation.train_classifier import (
    build_network,
    fit_network,
    one_thread,
    steps_with_test,
)
from fedsynth.experiment.job import Job
from fedsynth.methods.gs_wgan.generator import GeneratorTrainer, draw_inputs, new_generator
from fedsynth.methods.psg.gradient_matching import MatchedImages, MatchingConfig
from fedsynth.methods.without_noise import with_its_noise
from fedsynth.nn import optimizers
from fedsynth.nn.classifiers.convnet import make_convnet
from fedsynth.nn.classifiers.registry import classifier
from fedsynth.nn.compute_dtype import ComputeDtype, autocast, compute_type
from fedsynth.nn.ensembles.strided_conv import windows
from fedsynth.nn.ensembles.teacher import TeacherStack, adam_step
from fedsynth.nn.ensembles.teacher_config import TeacherConfig, initial_parameters
from fedsynth.nn.gan.critics import ProjectionCritic, wasserstein_loss
from fedsynth.nn.per_example.gradients import logits, loss_and_gradients
from fedsynth.nn.transforms.scattering import scattering
from fedsynth.privacy.clipping import clipped_gradient_sum

PROBE = 32  # teachers or images per probe; time is assumed to grow with their number
MOST = 128  # records or images per probe of a step with a batch of its own
REPEATS, LEAST = 5, 3  # probes of which the median counts; fewer if they take long
PROBE_LARGE = 8  # of networks that take long
LARGE = ("alexnet", "vgg11", "resnet18")
MAX_PROBE_SECONDS = 1.0  # after this, no more than the least number
TEST_IMAGES = 10_000  # of all classes, about


FITS = {
    "logistic_regression": (45.0, 0.8),
    "random_forest": (47.0, 0.9),
    "gaussian_nb": (10.0, 0.2),
    "bernoulli_nb": (5.0, 0.2),
    "linear_svc": (57.0, 1.4),
    "decision_tree": (11.0, 1.2),
    "lda": (20.0, 0.4),
    "adaboost": (160.0, 0.9),
    "mlp": (98.0, 0.9),
    "bagging": (27.0, 0.8),
    "gbm": (180.0, 1.0),
    "xgboost": (145.0, 1.1),
}
"""Per classical classifier: the time of a fit on 1,000 images of MNIST and of 5,000 predictions, in
steps of a ConvNet of width 32 on 32 images, and the power of the number of images it grows with."""

UNIT = EvaluationConfig("P", width=32)
UNIT_INFO = DatasetInfo("unit", (1, 28, 28), 10, (0.1307,), (0.3081,))


# Releases


def release_seconds(plan: Plan) -> float:
    """Core-seconds of a plan, of parties and server together."""
    work = [*plan.server_cost, *(w for party in plan.parties for w in party.cost)]
    return work_seconds(work, plan.stage.data)


def work_seconds(work: Iterable[ComputeCost], data: DatasetInfo) -> float:
    """Core-seconds of this work on this machine."""
    total = 0.0
    for w in work:
        if w.times and w.batch:
            count = PROBE if w.kind in {"teachers", "scattering"} else min(w.batch, MOST)
            unit = _probe(w.kind, w.width, data, count, w.dtype)
            total += w.times * (w.batch / count) * unit
    return total


@functools.cache
def _probe(kind: str, width: int, data: DatasetInfo, count: int, dtype: str) -> float:
    """Seconds of one unit of work on `count` records."""
    if kind == "teachers":
        return typical_seconds(_teacher_round(width, data))
    if kind == "scattering":
        half = torch.full((count, *data.shape), 0.5)
        return typical_seconds(lambda: scattering(half))
    if kind == "critic" or kind.endswith((" draw", " step")):
        return typical_seconds(_gan_work(kind, width, data, count, dtype))
    if data.kind == DataKind.TABLE:
        with default_seed("probe"):
            net: nn.Module = classifier("mlp", data.shape, data.classes)
    else:
        net = make_convnet(width, data, data.classes, "probe")
    generator = torch.Generator().manual_seed(0)
    images = torch.randn((count, *data.shape), generator=generator)
    labels = torch.arange(count) % data.classes
    if kind == "match":
        matching = MatchingConfig(spc=count, width=width, matching_dtype=ComputeDtype(dtype))
        matched = MatchedImages(matching, data, [0], ("probe",))
        real = [torch.ones_like(p) for p in net.parameters()]
        return typical_seconds(lambda: matched.match(net, real))

    def gradient() -> None:
        clipped_gradient_sum(net, images, labels, clip=1.0, dtype=dtype)

    def train() -> None:
        loss_and_gradients(net, images, labels, compute=compute_type(dtype))

    return typical_seconds({"gradient": gradient, "train": train}[kind])


def _gan_work(
    kind: str, width: int, data: DatasetInfo, count: int, dtype: str
) -> Callable[[], object]:
    """A step of GS-WGAN's critic, or one of its generators at work."""
    latents, labels = draw_inputs(count, 10, torch.arange(data.classes), ("probe",))
    real, fake = torch.rand((2, count, *data.shape), generator=torch_generator("probe"))
    if kind == "critic":
        with default_seed("probe"):
            critic = ProjectionCritic(width, data.classes, data.shape)
        adam = optimizers.Adam(critic.parameters(), 1e-4)

        def train() -> None:
            with autocast(dtype):
                loss = wasserstein_loss(
                    critic, real, fake, labels, torch.full((count,), 0.5), penalty=10.0, drift=0.001
                )
            adam.zero_grad()
            loss.backward()
            adam.step()

        return train
    architecture, _, work = kind.partition(" ")
    net = new_generator(architecture, width, 10, data.classes, data, "probe")
    trainer = GeneratorTrainer(net, learning_rate=1e-4, ema_decay=0.999, dtype=dtype)

    @torch.no_grad()
    def draw() -> object:
        return trainer.images(latents, labels)

    def step() -> None:
        trainer.step(1, trainer.images(latents, labels), fake)

    return draw if work == "draw" else step


def _teacher_round(width: int, data: DatasetInfo) -> Callable[[], None]:
    """A round of `PROBE` DataLens teachers with `width` hidden units, in published proportions."""
    shape = TeacherConfig(
        data.shape, data.classes, batch=15, channels=max(1, width // 8), hidden=width
    )
    generator = torch.Generator().manual_seed(0)
    flat = initial_parameters(shape, PROBE, generator, torch.bfloat16)
    gradient, first, second = torch.zeros(3, *flat.shape, dtype=flat.dtype)
    stack, grads = TeacherStack(shape, shape.views(flat, PROBE)), shape.views(gradient, PROBE)
    images = torch.rand((PROBE * 2 * shape.batch, *data.shape), generator=generator)
    rows = windows(images.bfloat16().permute(0, 2, 3, 1).contiguous()).unflatten(0, (PROBE, -1))
    labels = torch.arange(2 * shape.batch).expand(PROBE, -1) % data.classes

    def run() -> None:
        for step in range(2):
            stack.training_gradient(rows, labels, grads)
            adam_step(flat, gradient, first, second, step)
        stack.image_gradient(rows[:, : shape.batch], labels[:, : shape.batch])

    return run


# Evaluation


def evaluation_seconds(job: Job) -> float:
    """Core-seconds of evaluating every stage of a job: training and testing classifiers, and
    computing image quality."""
    total, images = 0.0, 0
    for plan in job.plans:
        info = plan.stage.data
        tests = TEST_IMAGES * len(plan.stage.seen) // info.classes
        if ends_in_model(job):
            tested = "linear" if info.kind == DataKind.TABLE else "convnet"
            total += tests * test_seconds(tested, job.evaluation.width, info)
            continue
        images += released_images(job, plan)
        total += classifier_seconds(job.evaluation, info, max(1, images), tests)
        total += quality_seconds(job.evaluation, info, max(1, images), TEST_IMAGES)
    return total


def baseline_seconds(jobs: Sequence[Job]) -> float:
    """Core-seconds of the baselines on real data, computed once and kept on disk: the classifiers
    for calibration, one set per stage, and the image scorer."""
    if not (evaluated := [job for job in jobs if not ends_in_model(job)]):
        return 0.0
    setting, total, records = evaluated[0].evaluation, 0.0, 0
    for plan in evaluated[0].plans:
        records += sum(share.records for share in plan.parties)
        tests = TEST_IMAGES * len(plan.stage.seen) // plan.stage.data.classes
        if setting.rules.calibrated:
            total += classifier_seconds(replace(setting, nets=1), plan.stage.data, records, tests)
    return total + scorer_training_seconds(setting, evaluated[0].plans[0].stage.data, records)


def ends_in_model(job: Job) -> bool:
    """True if a job ends in a model, which is tested itself: a private method without a number of
    images per class."""
    return with_its_noise(job.method_impl).private and not hasattr(job.config, "spc")


def released_images(job: Job, plan: Plan) -> int:
    """Images of one stage, by the plan: those that the parties send, or `spc` per class if the
    server generates them."""
    if plan.images is not None:
        return plan.images
    sent = sum(share.bytes_up for share in plan.parties) // _image_bytes(job, plan)
    if not hasattr(job.config, "spc"):
        return sent
    drawn: int = job.config.spc * len(plan.stage.classes)
    return max(sent, drawn) if plan.rounds == 1 else drawn


def _image_bytes(job: Job, plan: Plan) -> int:
    channels, height, width = plan.stage.data.shape
    raw = not with_its_noise(job.method_impl).private and not hasattr(job.config, "spc")
    return channels * height * width * (1 if raw else 4) + 8


def classifier_seconds(
    setting: EvaluationConfig, info: DatasetInfo, images: int, tests: int
) -> float:
    """Core-seconds of evaluating one set of `images` images with all classifiers of the setting.

    Args:
        setting: Classifiers, repetitions and protocol.
        info: The data set.
        images: Images in the released set.
        tests: Test images.
    """
    used = min(images, setting.most_images(info.classes) or images)
    total = 0.0
    for name in setting.classifiers(info):
        if setting.protocol == "G" and name in CLASSICAL:
            total += fit_seconds(name, info, used)
        else:
            total += _network_seconds(name, setting, info, used, tests)
    return total * setting.repetitions


def _network_seconds(
    name: str, setting: EvaluationConfig, info: DatasetInfo, images: int, tests: int
) -> float:
    plan, rules = setting.schedule(images), setting.rules
    batch = min(rules.batch, images)
    stepping = plan.steps * batch * training_seconds(name, setting, info)
    tested = tests * (len(steps_with_test(plan)) if rules.test_every_epoch else 1)
    return stepping + tested * test_seconds(name, setting.width, info)


def fit_seconds(name: str, info: DatasetInfo, images: int) -> float:
    """Core-seconds of fitting a classical classifier on this many images."""
    steps, power = FITS[name]
    unit = PROBE * training_seconds("convnet", UNIT, UNIT_INFO)
    size = math.prod(info.shape) / math.prod(UNIT_INFO.shape)
    return float(steps * unit * (images / 1000) ** power * size)


def quality_seconds(setting: EvaluationConfig, info: DatasetInfo, images: int, tests: int) -> float:
    """Core-seconds of rating a set with a trained scorer."""
    if not setting.quality:
        return 0.0
    cap = MAX_IMAGES_IF_CAPPED if setting.scorer_images else REAL
    rated = (
        min(images, GENERATED if not setting.scorer_images else MAX_IMAGES_IF_CAPPED) + cap + tests
    )
    return rated * scorer_seconds(setting.scorer_width, info, training=False)


def scorer_training_seconds(setting: EvaluationConfig, info: DatasetInfo, records: int) -> float:
    """Core-seconds of training the scorer, once per data set."""
    if not setting.quality:
        return 0.0
    steps = ScorerConfig(setting.scorer_width, setting.scorer_images).steps(records)
    batch = min(SCORER_BATCH, records)
    return steps * batch * scorer_seconds(setting.scorer_width, info, training=True)


@functools.cache
def training_seconds(name: str, setting: EvaluationConfig, info: DatasetInfo) -> float:
    """Core-seconds per image of one training step of a network under the setting's protocol."""
    rules = setting.rules
    count = PROBE_LARGE if name in LARGE else min(PROBE, rules.batch)
    net = build_network(name, info, info.classes, setting.width, ("probe",))
    images, labels = _random_batch(info, count)

    def step() -> None:
        fit_network(
            net,
            rules.normalize(images, info),
            labels,
            plan=TrainingSchedule(1, 1, 1.0),
            rules=rules,
            augmentations=rules.augmentations(info),
            generator=torch_generator("probe"),
            dtype=setting.dtype,
        )

    return typical_seconds(step) / count


@functools.cache
def test_seconds(name: str, width: int, info: DatasetInfo) -> float:
    """Core-seconds per test image."""
    net = build_network(name, info, info.classes, width, ("probe",)).eval()
    images, _ = _random_batch(info, PROBE)
    return typical_seconds(lambda: logits(net, images)) / PROBE


@functools.cache
def scorer_seconds(width: int, info: DatasetInfo, *, training: bool) -> float:
    """Core-seconds per image, in a training step of the scorer or when rated."""
    net = Scorer(info, width).train(training)
    images, labels = _random_batch(info, PROBE)

    def step() -> None:
        torch.nn.functional.cross_entropy(net(images), labels).backward()

    return (
        typical_seconds(step if training else lambda: net.features_and_probabilities(images))
        / PROBE
    )


def _random_batch(info: DatasetInfo, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.rand((count, *info.shape), generator=torch_generator("probe", count))
    return images, torch.arange(count) % info.classes


def typical_seconds(run: Callable[[], object]) -> float:
    """Seconds of processor time of a call: the median of a few, after a first that does not count.

    The first call imports modules and allocates; it may take a thousand times as long."""
    prepare_worker()
    taken: list[float] = []
    with one_thread():
        run()
        while len(taken) < LEAST or (len(taken) < REPEATS and sum(taken) < MAX_PROBE_SECONDS):
            start = time.process_time()
            run()
            taken.append(time.process_time() - start)
    return statistics.median(taken)
