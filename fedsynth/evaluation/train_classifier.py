"""Train a fresh classifier on what was released, test it on real test images.

Both functions are plain, top-level and picklable, so a process or a Ray worker can run them. They
compute with one thread and draw everything from the public key they are given: the same key gives
the same bits on the same machine, wherever and beside whatever it runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch.optim.lr_scheduler import OneCycleLR

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import ReleasedModel, SyntheticSet
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.randomness import key as seed_of
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation import classical_classifiers as suite
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.protocols import LOOKS_CAPPED, PROTOCOLS, ParticipationSchedule, Protocol
from fedsynth.evaluation.types import (
    EvalResult,
    EvaluationTask,
    counted,
    pixels,
    positions,
    targets,
    used,
)
from fedsynth.nn.classifiers.convnet import convnet_from_state
from fedsynth.nn.classifiers.registry import classifier
from fedsynth.nn.compute_dtype import compute_type
from fedsynth.nn.per_example.gradients import logits, loss_and_gradients
from fedsynth.nn.transforms.augment import apply_dsa, crop_scale_rotate, draw_dsa, random_affine

TEST_BATCH = 100


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: thread counts change the order of sums, and so the bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fit_network(
    net: torch.nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    plan: ParticipationSchedule,
    rules: Protocol,
    strategy: Sequence[str],
    generator: torch.Generator,
    dtype: str = "float32",
    look: Callable[[], None] | None = None,
    look_after: frozenset[int] = frozenset(),
) -> None:
    """Shuffled passes, the last of which may be cut short; so may the last batch of a pass.

    `labels` are places in the head, or rows of probabilities over it. `look` is called after the
    steps of `look_after`, counted from 1."""

    def batches() -> Iterator[torch.Tensor]:
        while True:
            yield from torch.randperm(len(images), generator=generator).split(rules.batch)

    compute = compute_type(dtype, images.device)
    net.train()
    optimiser = rules.optimiser(net.parameters(), rules.learning_rate)
    cycle = None
    if rules.one_cycle:
        cycle = OneCycleLR(optimiser, rules.learning_rate, total_steps=plan.steps + 1)
    for step, chosen in zip(range(plan.steps), batches(), strict=False):
        if step == plan.drop_after and cycle is None:
            optimiser = rules.optimiser(net.parameters(), rules.learning_rate * rules.drop)
        x, y = images[chosen.to(images.device)], labels[chosen.to(labels.device)]
        if strategy and rules.augmentation == "dsa":
            x = apply_dsa(x, draw_dsa(generator, strategy, len(x)))
        elif strategy and rules.augmentation == "affine":
            x = random_affine(x, generator, fill=float(x.min()))
        elif strategy:
            x = crop_scale_rotate(x, generator, strategy)
        _, slopes = loss_and_gradients(net, x, y, compute=compute)
        for weight, slope in zip(net.parameters(), slopes, strict=True):
            weight.grad = slope
        optimiser.step()
        if cycle is not None:
            cycle.step()
        if look is not None and step + 1 in look_after:
            look()
            net.train()


@torch.inference_mode()
def _score(
    net: torch.nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    rules: Protocol,
    info: DatasetInfo,
    outputs: Sequence[int],
) -> dict[int, tuple[int, int]]:
    """Correct and tested per class of the test labels, for the argmax over all outputs."""
    device = next(net.parameters()).device
    net.eval()
    predicted = torch.cat(
        [
            logits(net, rules.scaled(pixels(part.to(device)), info)).argmax(dim=1).cpu()
            for part in images.split(TEST_BATCH)
        ]
    )
    return counted(torch.tensor(outputs)[predicted] == labels.cpu(), labels.cpu())


def looks(plan: ParticipationSchedule) -> frozenset[int]:
    """The steps after which a training that is tested on the way is tested: every whole pass, or
    `LOOKS_CAPPED` of them, evenly spread, where there are more and a cap has cut the schedule."""
    passes = max(1, int(plan.epochs))
    number = min(passes, LOOKS_CAPPED) if plan.capped else passes
    return frozenset(round(plan.steps * (i + 1) / number) for i in range(number))


def train_and_test(
    train: SyntheticSet,
    test_images: torch.Tensor,
    test_labels: torch.Tensor,
    order: Sequence[int],
    *,
    info: DatasetInfo,
    setting: EvaluationConfig,
    key: tuple[object, ...],
    name: str = "",
    device: str = "cpu",
) -> EvalResult:
    """Train one fresh classifier with a head over `order` (the classes seen so far) on `train`, by
    the protocol of `setting`, and test the net of the last epoch on all test images.

    `name` is the classifier, by default the first of the setting's. `key` is the whole of its
    randomness; images are on the pixel scale (bytes or floats).
    """
    start = time.perf_counter()
    name = name or setting.judges(info)[0]
    if not len(train.images) or not len(test_images):
        raise UserError("nothing to evaluate: the released set or the test set is empty.")
    if not bool(torch.isfinite(train.images).all()):
        raise UserError("the released images are not all finite, so no classifier can be trained.")
    positions(test_labels, order)
    chosen = used(train, setting.rules.most, key)
    exam = EvaluationTask(name, chosen, test_images, test_labels, order, info, setting, key, device)
    classical = setting.protocol == "G" and name in suite.CLASSICAL
    with one_thread():
        result = _classical(exam) if classical else _network(exam)
    return replace(result, released=len(train.images), seconds=time.perf_counter() - start)


def network(
    name: str, info: DatasetInfo, classes: int, width: int, key: tuple[object, ...]
) -> torch.nn.Module:
    """A fresh network by its name under any protocol; its weights depend on the key alone."""
    with default_seed(*key, "classifier"):
        kind = "lenet" if name == suite.CNN else name
        return classifier(kind, info.shape, classes, width)


def _network(exam: EvaluationTask) -> EvalResult:
    """Train a network with SGD and test it."""
    setting, key = exam.setting, exam.key
    rules, plan = setting.rules, setting.schedule(len(exam.train.images))
    net = network(exam.name, exam.info, len(exam.order), setting.width, key).to(exam.device)
    seen: list[EvalResult] = []

    def result() -> EvalResult:
        return EvalResult(
            _score(
                net,
                exam.test_images,
                exam.test_labels,
                rules=rules,
                info=exam.info,
                outputs=list(exam.order),
            ),
            setting.protocol,
            exam.name,
            setting.width,
            plan.epochs,
            plan.steps,
            len(exam.train.images),
            batch=rules.batch,
        )

    fit_network(
        net,
        rules.scaled(pixels(exam.train.images), exam.info).to(exam.device),
        targets(exam.train, exam.order).to(exam.device),
        plan=plan,
        rules=rules,
        strategy=rules.strategy(exam.info),
        generator=torch_generator(*key, "training"),
        dtype=setting.dtype,
        look=lambda: seen.append(result()),
        look_after=looks(plan) if rules.optimistic else frozenset(),
    )
    if not seen:
        return result()
    best = max(on_the_way.accuracy for on_the_way in seen)
    return replace(seen[-1], optimistic=best, looks=len(seen))


def _classical(exam: EvaluationTask) -> EvalResult:
    """Fit a classifier of the suite on pixels clamped to [0, 1] and test it."""
    places, remark = suite.fit_and_predict(
        exam.name,
        pixels(exam.train.images).clamp(0, 1),
        positions(exam.train.labels, exam.order),
        pixels(exam.test_images),
        seed_of(*exam.key, exam.name),
    )
    right = torch.tensor(exam.order)[places] == exam.test_labels.cpu()
    return EvalResult(
        counted(right, exam.test_labels.cpu()),
        exam.setting.protocol,
        exam.name,
        width=0,
        epochs=0.0,
        steps=0,
        images=len(exam.train.images),
        remark=remark,
    )


def score_model(
    model: ReleasedModel,
    test_images: torch.Tensor,
    test_labels: torch.Tensor,
    *,
    info: DatasetInfo,
    device: str = "cpu",
) -> EvalResult:
    """Test a released ConvNet as it is: argmax over all classes of the data set, including those
    nobody has shown it yet. It was trained by its method, on standardised images and under no
    protocol of ours, so epochs and steps are 0."""
    start = time.perf_counter()
    rules = PROTOCOLS["P"]  # whatever protocol judges sets: its scale is that of released models
    with one_thread():
        net = convnet_from_state(model.width, info, model.state, device)
        outputs = range(info.classes)
        per_class = _score(net, test_images, test_labels, rules=rules, info=info, outputs=outputs)
    return EvalResult(
        per_class,
        "none",
        "convnet",
        model.width,
        0.0,
        0,
        0,
        seconds=time.perf_counter() - start,
    )
