"""Train a fresh classifier on what was released, test it on real test images.

Both functions are plain, top-level and picklable, so a process or a Ray worker can run them. They
compute with one thread and draw everything from the public key they are given: the same key gives
the same bits on the same machine, wherever and beside whatever it runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.optim.lr_scheduler import OneCycleLR

from fedsynth.core import DataFacts, ReleasedModel, SyntheticSet
from fedsynth.errors import UserError
from fedsynth.evaluation.augment import apply, crop_scale_rotate, draw, random_affine
from fedsynth.evaluation.protocols import EvalSetting, Protocol, Schedule
from fedsynth.models.classifiers import filled_convnet
from fedsynth.models.gradients import logits, loss_and_gradients
from fedsynth.models.zoo import classifier
from fedsynth.randomness import default_seed, torch_generator

TEST_BATCH = 100


@dataclass(frozen=True)
class EvalResult:
    """What one net scored, and under which protocol it really ran."""

    per_class: Mapping[int, tuple[int, int]]  # class of the data set -> correct, tested
    protocol: str
    classifier: str
    width: int
    epochs: float
    steps: int
    images: int  # training images
    seconds: float = field(default=0.0, compare=False)
    batch: int = 0  # most images a step

    @property
    def accuracy(self) -> float:
        """Pooled accuracy: correct over tested, all images alike."""
        correct, tested = map(sum, zip(*self.per_class.values(), strict=True))
        return correct / tested


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: thread counts change the order of sums, and so the bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pixels(images: torch.Tensor) -> torch.Tensor:
    """Images as float32 on the pixel scale, from bytes or from floats that already are."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def positions(labels: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The place of each label in `order`; a label that is not there is an error."""
    lookup = {name: place for place, name in enumerate(order)}
    names, inverse = torch.unique(labels.cpu(), return_inverse=True)
    strangers = [int(name) for name in names if int(name) not in lookup]
    if strangers:
        raise UserError(f"labels {strangers} are not among the classes seen so far: {list(order)}.")
    return torch.tensor([lookup[int(name)] for name in names], dtype=torch.long)[inverse]


def targets(train: SyntheticSet, order: Sequence[int]) -> torch.Tensor:
    """What a head over `order` is taught: the places of the labels, or, where the set has soft
    labels, their probabilities given that the class is one of `order`."""
    hard = positions(train.labels, order)
    if train.soft is None:
        return hard
    chosen = train.soft.cpu()[:, list(order)]
    total = chosen.sum(dim=1, keepdim=True)
    if train.soft.shape[0] != len(hard) or not bool((total > 0).all()):
        raise UserError("the released soft labels do not fit the images or the classes seen.")
    return chosen / total


def _train(
    net: torch.nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    plan: Schedule,
    rules: Protocol,
    strategy: Sequence[str],
    generator: torch.Generator,
    dtype: str = "float32",
) -> None:
    """Shuffled passes, the last of which may be cut short; so may the last batch of a pass.

    `labels` are places in the head, or rows of probabilities over it."""

    def batches() -> Iterator[torch.Tensor]:
        while True:
            yield from torch.randperm(len(images), generator=generator).split(rules.batch)

    compute = None if dtype == "float32" else getattr(torch, dtype)
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
            x = apply(x, draw(generator, strategy, len(x)))
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


@torch.inference_mode()
def _score(
    net: torch.nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    rules: Protocol,
    facts: DataFacts,
    outputs: Sequence[int],
) -> dict[int, tuple[int, int]]:
    """Correct and tested per class of the test labels, for the argmax over all outputs."""
    device = next(net.parameters()).device
    net.eval()
    predicted = torch.cat(
        [
            logits(net, rules.scaled(pixels(part.to(device)), facts)).argmax(dim=1).cpu()
            for part in images.split(TEST_BATCH)
        ]
    )
    right = torch.tensor(outputs)[predicted] == labels.cpu()
    return {
        int(name): (int(right[labels.cpu() == name].sum()), int((labels == name).sum()))
        for name in torch.unique(labels.cpu())
    }


def train_and_test(
    train: SyntheticSet,
    test_images: torch.Tensor,
    test_labels: torch.Tensor,
    order: Sequence[int],
    *,
    facts: DataFacts,
    setting: EvalSetting,
    key: tuple[object, ...],
    device: str = "cpu",
) -> EvalResult:
    """Train one fresh classifier with a head over `order` (the classes seen so far) on all of
    `train`, by the protocol of `setting`, and test the net of the last epoch on all test images.

    `key` is the whole of its randomness; images are on the pixel scale (bytes or floats).
    """
    start = time.perf_counter()
    rules = setting.rules
    if not len(train.images) or not len(test_images):
        raise UserError("nothing to evaluate: the released set or the test set is empty.")
    if not bool(torch.isfinite(train.images).all()):
        raise UserError("the released images are not all finite, so no classifier can be trained.")
    positions(test_labels, order)
    plan = setting.schedule(len(train.images))
    with one_thread():
        images = rules.scaled(pixels(train.images), facts).to(device)
        labels = targets(train, order).to(device)
        with default_seed(*key, "classifier"):
            net = classifier(setting.classifier, facts.shape, len(order), setting.width).to(device)
        generator = torch_generator(*key, "training")
        strategy = rules.strategy(facts)
        _train(
            net,
            images,
            labels,
            plan=plan,
            rules=rules,
            strategy=strategy,
            generator=generator,
            dtype=setting.dtype,
        )
        per_class = _score(
            net, test_images, test_labels, rules=rules, facts=facts, outputs=list(order)
        )
    return EvalResult(
        per_class,
        setting.protocol,
        setting.classifier,
        setting.width,
        plan.epochs,
        plan.steps,
        len(train.images),
        seconds=time.perf_counter() - start,
        batch=rules.batch,
    )


def score_model(
    model: ReleasedModel,
    test_images: torch.Tensor,
    test_labels: torch.Tensor,
    *,
    facts: DataFacts,
    setting: EvalSetting,
    device: str = "cpu",
) -> EvalResult:
    """Test a released ConvNet as it is: argmax over all classes of the data set, including those
    nobody has shown it yet. It was trained by its method, so epochs and steps are 0."""
    start = time.perf_counter()
    rules = setting.rules
    with one_thread():
        net = filled_convnet(model.width, facts, model.state, device)
        outputs = range(facts.classes)
        per_class = _score(net, test_images, test_labels, rules=rules, facts=facts, outputs=outputs)
    return EvalResult(
        per_class,
        setting.protocol,
        "convnet",
        model.width,
        0.0,
        0,
        0,
        seconds=time.perf_counter() - start,
    )
