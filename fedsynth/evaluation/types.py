"""What a classifier is taught and tested on, and what came of it: the parts every judge shares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.config import EvaluationConfig


@dataclass(frozen=True)
class EvalResult:
    """What one net scored, and under which protocol it really ran."""

    per_class: Mapping[int, tuple[int, int]]  # class of the data set -> correct, tested
    protocol: str  # "none": a released model, which its method has trained
    classifier: str
    width: int
    epochs: float
    steps: int
    images: int  # training images
    seconds: float = field(default=0.0, compare=False)
    batch: int = 0  # most images a step
    released: int = 0  # images it could have been trained on
    optimistic: float | None = None  # the best accuracy of all tests on the way, where there were
    looks: int = 0  # tests on the way
    real: float | None = None  # accuracy of the same classifier trained on real data
    remark: str = ""  # what a reader should know of this classifier

    @property
    def accuracy(self) -> float:
        """Pooled accuracy: correct over tested, all images alike."""
        correct, tested = map(sum, zip(*self.per_class.values(), strict=True))
        return correct / tested


def read_verdict(text: str) -> EvalResult:
    """A result from the JSON of its fields."""
    fields = json.loads(text)
    fields["per_class"] = {int(c): tuple(counts) for c, counts in fields["per_class"].items()}
    return EvalResult(**fields)


@dataclass(frozen=True)
class EvaluationTask:
    """One classifier's task: what it learns from, what it is tested on, under which rules."""

    name: str  # of the classifier
    train: SyntheticSet
    test_images: torch.Tensor
    test_labels: torch.Tensor
    order: Sequence[int]  # the classes seen so far, over which the head is
    info: DatasetInfo
    setting: EvaluationConfig
    key: tuple[object, ...]  # the whole of its randomness
    device: str = "cpu"


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


def used(train: SyntheticSet, most: int, key: tuple[object, ...]) -> SyntheticSet:
    """At most so many images of a set, drawn at random, of every class alike as far as it goes."""
    if not most or len(train.labels) <= most:
        return train
    order = torch.randperm(len(train.labels), generator=torch_generator(*key, "subset"))
    labels = train.labels[order]
    rank = torch.zeros_like(labels)
    for name in torch.unique(labels):
        rank[labels == name] = torch.arange(int((labels == name).sum()))
    kept = order[rank.argsort(stable=True)[:most]].sort().values
    soft = None if train.soft is None else train.soft[kept]
    return replace(train, images=train.images[kept], labels=train.labels[kept], soft=soft)


def counted(right: torch.Tensor, labels: torch.Tensor) -> dict[int, tuple[int, int]]:
    """Correct and tested per class."""
    return {
        int(name): (int(right[labels == name].sum()), int((labels == name).sum()))
        for name in torch.unique(labels)
    }
