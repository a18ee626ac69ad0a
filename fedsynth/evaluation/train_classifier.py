"""Training of a fresh classifier on a released set, and its test on real test images.

The functions compute with one thread and draw all randomness from the public key of their task:
equal keys give equal bits on the same machine, in any process and under any load.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.optim.lr_scheduler import OneCycleLR

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import ReleasedModel, SyntheticSet, unit_interval
from fedsynth.core.randomness import default_seed, torch_generator
from fedsynth.core.randomness import key as seed_of
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.classical_classifiers import CLASSICAL, CNN, fit_and_predict
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.evaluation.protocols import (
    MAX_TESTS_IF_CAPPED,
    PROTOCOLS,
    Protocol,
    TrainingSchedule,
)
from fedsynth.evaluation.types import (
    EvalResult,
    Predictions,
    checked_class_indices,
    subsample,
    training_targets,
)
from fedsynth.nn.classifiers.registry import classifier, classifier_from_state
from fedsynth.nn.compute_dtype import compute_type
from fedsynth.nn.per_example.gradients import logits, loss_and_gradients
from fedsynth.nn.transforms.augment import apply_dsa, crop_scale_rotate, draw_dsa, random_affine

TEST_BATCH = 100
CHECKED_AT_ONCE = 1024  # images
LOSSES = 20  # values of a loss curve, about


@dataclass(frozen=True)
class EvaluationTask:
    """Training set, test set and rules of one classifier."""

    classifier: str  # by name
    train: SyntheticSet  # on the pixel scale, bytes or floats
    test_images: torch.Tensor
    test_labels: torch.Tensor
    classes: Sequence[int]  # seen so far; the classifier predicts one of them
    info: DatasetInfo
    config: EvaluationConfig
    key: tuple[object, ...]  # of all randomness
    device: str = "cpu"


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: the number of threads changes the order of sums, hence the bits."""
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
    plan: TrainingSchedule,
    rules: Protocol,
    augmentations: Sequence[str],
    generator: torch.Generator,
    dtype: str = "float32",
    callback: Callable[[], None] | None = None,
    callback_steps: frozenset[int] = frozenset(),
    losses: dict[int, torch.Tensor] | None = None,
) -> None:
    """Train a network in shuffled epochs; the last batch of an epoch may be smaller.

    Args:
        net: the network, trained in place.
        images: normalised images.
        labels: class indices, or rows of class probabilities.
        plan: number of steps and learning rate drop.
        rules: the protocol.
        augmentations: those of the protocol for this data.
        generator: source of batches and augmentations.
        dtype: type of matrix products and convolutions.
        callback: called after the steps of `callback_steps`, counted from 1.
        callback_steps: the steps followed by the callback.
        losses: receives the loss of the batch of about `LOSSES` steps in even distances.
    """

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
            optimiser = rules.optimiser(
                net.parameters(), rules.learning_rate * rules.learning_rate_drop
            )
        x, y = images[chosen.to(images.device)], labels[chosen.to(labels.device)]
        if augmentations and rules.augmentation == "dsa":
            x = apply_dsa(x, draw_dsa(generator, augmentations, len(x)))
        elif augmentations and rules.augmentation == "affine":
            x = random_affine(x, generator, fill=x.min())
        elif augmentations:
            x = crop_scale_rotate(x, generator, augmentations)
        loss, gradients = loss_and_gradients(net, x, y, compute=compute)
        for parameter, gradient in zip(net.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimiser.step()
        if cycle is not None:
            cycle.step()
        if losses is not None and step % max(1, plan.steps // LOSSES) == 0:
            losses[step + 1] = loss.detach()
        if callback is not None and step + 1 in callback_steps:
            callback()
            net.train()


@torch.inference_mode()
def _test(
    net: torch.nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    rules: Protocol,
    info: DatasetInfo,
    outputs: Sequence[int],
) -> Predictions:
    """Predictions per class; output number i predicts the class `outputs[i]`."""
    device = next(net.parameters()).device
    net.eval()
    predicted = torch.cat(
        [
            logits(net, rules.normalize(unit_interval(part.to(device)), info)).argmax(dim=1)
            for part in images.split(TEST_BATCH)
        ]
    ).cpu()
    return Predictions.of(torch.tensor(list(outputs))[predicted], labels)


def steps_with_test(plan: TrainingSchedule) -> frozenset[int]:
    """The steps followed by a test, if the protocol tests during training.

    These are the ends of all epochs, or `MAX_TESTS_IF_CAPPED` evenly spaced steps if there are more
    epochs and a cap has cut the schedule.
    """
    epochs = max(1, int(plan.epochs))
    number = min(epochs, MAX_TESTS_IF_CAPPED) if plan.capped else epochs
    return frozenset(round(plan.steps * (i + 1) / number) for i in range(number))


@dataclass(frozen=True)
class Curves:
    """Losses and accuracies in the course of a training, for display."""

    losses: list[tuple[int, float]] = field(default_factory=list)
    accuracies: list[tuple[int, float]] = field(default_factory=list)


def train_and_test(task: EvaluationTask, curves: Curves | None = None) -> EvalResult:
    """Train one fresh classifier by its protocol and test it on all test images.

    The network after the last epoch is tested. The result depends on the task alone.

    Args:
        task: The classifier and its data.
        curves: Receives the course of the training of a network.

    Raises:
        UserError: there is nothing to train on or to test, or the images or labels are unusable.
    """
    start = time.perf_counter()
    released = len(task.train.images)
    if not released or not len(task.test_images):
        raise UserError("nothing to evaluate: the released set or the test set is empty.")
    # In parts: the check copies what it is given.
    if not all(
        bool(torch.isfinite(part).all()) for part in task.train.images.split(CHECKED_AT_ONCE)
    ):
        raise UserError("the released images are not all finite, so no classifier can be trained.")
    checked_class_indices(task.test_labels, task.classes)
    config = task.config
    most = config.most_images(len(task.train.labels.unique()))
    task = replace(task, train=subsample(task.train, most, task.key))
    classical = config.protocol == "G" and task.classifier in CLASSICAL
    with one_thread():
        result = _fit_classical(task) if classical else _train_network(task, curves)
    return replace(result, released=released, seconds=time.perf_counter() - start)


def build_network(
    name: str, info: DatasetInfo, classes: int, width: int, key: tuple[object, ...]
) -> torch.nn.Module:
    """A fresh network by its name under any protocol; its weights depend on the key alone."""
    with default_seed(*key, "classifier"):
        return classifier("lenet" if name == CNN else name, info.shape, classes, width)


def _train_network(task: EvaluationTask, curves: Curves | None) -> EvalResult:
    """Train a network with SGD and test it."""
    config, info = task.config, task.info
    rules, plan = config.rules, config.schedule(len(task.train.images))
    net = build_network(task.classifier, info, len(task.classes), config.width, task.key)
    net = net.to(task.device)
    earlier: list[EvalResult] = []

    def result() -> EvalResult:
        found = _test(
            net, task.test_images, task.test_labels, rules=rules, info=info, outputs=task.classes
        )
        return EvalResult(
            found.per_class,
            config.protocol,
            task.classifier,
            config.width,
            plan.epochs,
            plan.steps,
            len(task.train.images),
            batch=rules.batch,
            mistakes=found.mistakes,
        )

    losses: dict[int, torch.Tensor] | None = None if curves is None else {}
    tested = steps_with_test(plan) if rules.test_every_epoch else frozenset[int]()
    fit_network(
        net,
        rules.normalize(unit_interval(task.train.images), info).to(task.device),
        training_targets(task.train, task.classes).to(task.device),
        plan=plan,
        rules=rules,
        augmentations=rules.augmentations(info),
        generator=torch_generator(*task.key, "training"),
        dtype=config.dtype,
        callback=lambda: earlier.append(result()),
        callback_steps=tested,
        losses=losses,
    )
    last = earlier[-1] if earlier else result()
    if curves is not None and losses:
        curves.losses.extend(zip(losses, torch.stack([*losses.values()]).tolist(), strict=True))
        accuracies = [each.accuracy for each in earlier or [last]]
        curves.accuracies.extend(zip(sorted(tested) or [plan.steps], accuracies, strict=True))
    if not earlier:
        return last
    best = max(each.accuracy for each in earlier)
    return replace(earlier[-1], best_test_accuracy=best, tests_during_training=len(earlier))


def _fit_classical(task: EvaluationTask) -> EvalResult:
    """Fit a classical classifier on pixels clamped to [0, 1] and test it."""
    predicted, remark = fit_and_predict(
        task.classifier,
        unit_interval(task.train.images).clamp(0, 1),
        checked_class_indices(task.train.labels, task.classes),
        unit_interval(task.test_images),
        seed_of(*task.key, task.classifier),
    )
    found = Predictions.of(torch.tensor(task.classes)[predicted], task.test_labels)
    return EvalResult(
        found.per_class,
        task.config.protocol,
        task.classifier,
        width=0,
        epochs=0.0,
        steps=0,
        images=len(task.train.images),
        remark=remark,
        mistakes=found.mistakes,
    )


def score_model(
    model: ReleasedModel,
    test_images: torch.Tensor,
    test_labels: torch.Tensor,
    *,
    info: DatasetInfo,
    device: str = "cpu",
) -> EvalResult:
    """Test a released model without training: argmax over all classes of the data set.

    The classes include those of later stages. The model was trained by its method on standardised
    images and under no protocol, so the result counts no epochs and steps.
    """
    start = time.perf_counter()
    rules = PROTOCOLS["P"]  # only for its normalisation, which released models use as well
    with one_thread():
        net = classifier_from_state(model.network, model.width, info, model.state, device)
        outputs = range(info.classes)
        found = _test(net, test_images, test_labels, rules=rules, info=info, outputs=outputs)
    return EvalResult(
        found.per_class,
        "none",
        model.network,
        model.width,
        0.0,
        0,
        0,
        seconds=time.perf_counter() - start,
        mistakes=found.mistakes,
    )
