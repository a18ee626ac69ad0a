"""Results of an evaluation, and the label arithmetic that all classifiers share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch

from fedsynth.core.errors import UserError
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.data.records import class_indices

_FORMER_FIELDS = {  # of 0.1, in stored results
    "optimistic": "best_test_accuracy",
    "looks": "tests_during_training",
    "real": "real_data_accuracy",
}


@dataclass(frozen=True)
class EvalResult:
    """Test result of one classifier, with the protocol that was in fact followed.

    The field names are the keys of stored results; `from_json` also reads the names of 0.1.
    """

    per_class: Mapping[int, tuple[int, int]]  # class of the data set -> correct, tested
    protocol: str  # "none": a released model, trained by its method
    classifier: str
    width: int
    epochs: float
    steps: int
    images: int  # used for training
    seconds: float = field(default=0.0, compare=False)
    batch: int = 0  # at most so many images per step
    released: int = 0  # images available for training
    best_test_accuracy: float | None = None  # of all tests during training, if any
    tests_during_training: int = 0
    real_data_accuracy: float | None = None  # of the same classifier, trained on real data
    remark: str = ""  # on this classifier, for the reader
    mistakes: Mapping[int, Mapping[int, int]] | None = None  # class -> wrong prediction -> count

    @property
    def accuracy(self) -> float:
        """Correct over tested, pooled over all classes."""
        correct, tested = map(sum, zip(*self.per_class.values(), strict=True))
        return correct / tested

    def to_json(self) -> str:
        """The fields as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> EvalResult:
        """The result of `to_json`."""
        fields = json.loads(text)
        fields = {_FORMER_FIELDS.get(name, name): value for name, value in fields.items()}
        fields["per_class"] = {int(c): tuple(counts) for c, counts in fields["per_class"].items()}
        if fields.get("mistakes") is not None:
            fields["mistakes"] = {
                int(c): {int(wrong): count for wrong, count in row.items()}
                for c, row in fields["mistakes"].items()
            }
        return EvalResult(**fields)


def checked_class_indices(labels: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
    """The index of each label in `classes`.

    Raises:
        UserError: a label is not among the classes.
    """
    indices = class_indices(labels, classes)
    if len(unknown := labels.cpu()[indices < 0].unique()):
        raise UserError(
            f"labels {unknown.tolist()} are not among the classes seen so far: {list(classes)}."
        )
    return indices


def training_targets(train: SyntheticSet, classes: Sequence[int]) -> torch.Tensor:
    """Targets of a classifier over `classes`.

    Returns:
        Class indices, or, if the set has soft labels, their probabilities conditioned on `classes`.

    Raises:
        UserError: labels or soft labels do not fit the images or the classes.
    """
    hard = checked_class_indices(train.labels, classes)
    if train.soft is None:
        return hard
    chosen = train.soft.cpu()[:, list(classes)]
    total = chosen.sum(dim=1, keepdim=True)
    if train.soft.shape[0] != len(hard) or not bool((total > 0).all()):
        raise UserError("the released soft labels do not fit the images or the classes seen.")
    return chosen / total


def subsample(train: SyntheticSet, most: int, key: tuple[object, ...]) -> SyntheticSet:
    """A random subset of at most `most` images (0: all), as balanced over classes as possible."""
    if not most or len(train.labels) <= most:
        return train
    order = torch.randperm(len(train.labels), generator=torch_generator(*key, "subset"))
    labels = train.labels[order]
    rank = torch.zeros_like(labels)
    for label in torch.unique(labels):
        rank[labels == label] = torch.arange(int((labels == label).sum()))
    chosen = order[rank.argsort(stable=True)[:most]].sort().values
    soft = None if train.soft is None else train.soft[chosen]
    return replace(train, images=train.images[chosen], labels=train.labels[chosen], soft=soft)


@dataclass(frozen=True)
class Predictions:
    """Counts of what a classifier predicted for the test records of each class."""

    per_class: dict[int, tuple[int, int]]  # correct and tested
    mistakes: dict[int, dict[int, int]]  # class -> wrong prediction -> count, where there are any

    @staticmethod
    def of(predicted: torch.Tensor, labels: torch.Tensor) -> Predictions:
        """The counts of predicted classes and true ones."""
        predicted, labels = predicted.cpu(), labels.cpu()
        per_class, mistakes = {}, {}
        for label in map(int, torch.unique(labels)):
            found = predicted[labels == label]
            per_class[label] = (int((found == label).sum()), len(found))
            kinds, counts = torch.unique(found[found != label], return_counts=True)
            if len(kinds):
                mistakes[label] = dict(zip(kinds.tolist(), counts.tolist(), strict=True))
        return Predictions(per_class, mistakes)
