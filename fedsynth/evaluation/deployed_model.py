"""A model that is deployed on users' devices, and its accuracy on each user's records.

The accuracy of a user is private: the user's own decision to take part may depend on it
(`fedsynth.experiment.client_selection`), and it goes nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fedsynth.core.outcomes import unit_interval
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.data.records import Records
from fedsynth.evaluation.protocols import protocol
from fedsynth.evaluation.train_classifier import build_network, fit_network, one_thread
from fedsynth.nn.per_example.gradients import logits
from fedsynth.storage.disk_cache import file_stem, get_or_compute

FORM = 1  # raise it when the meaning of the cached numbers changes
CLASSIFIER = "lenet"
RULES = replace(protocol("P"), batch=64, augmentation="none")
MAX_IMAGES = 60_000  # image passes of its training
TEST_BATCH = 500


@dataclass(frozen=True)
class PerUserAccuracy:
    """Correct predictions of the model on each user's records."""

    correct: np.ndarray  # int64 [users]
    tested: np.ndarray  # int64 [users], at least 1 each

    @property
    def accuracies(self) -> np.ndarray:
        """Accuracy per user."""
        shares: np.ndarray = self.correct / self.tested
        return shares


def train_deployed_model(records: Records, info: DatasetInfo) -> torch.nn.Module:
    """A small CNN trained on these records; the same on every machine."""
    key = ("deployed", info.name, len(records.labels))
    net = build_network(CLASSIFIER, info, info.classes, 0, key)
    with one_thread():
        fit_network(
            net,
            RULES.normalize(unit_interval(records.images), info),
            records.labels,
            plan=RULES.schedule(len(records.labels), max_images=MAX_IMAGES),
            rules=RULES,
            augmentations=(),
            generator=torch_generator(*key, "training"),
        )
    return net.eval()


def per_user_accuracy(
    net: torch.nn.Module, users: Iterable[Records], info: DatasetInfo
) -> PerUserAccuracy:
    """Test the model on all records of each user."""
    correct, tested = [], []
    with torch.inference_mode(), one_thread():
        for user in users:
            predicted = [
                logits(net, RULES.normalize(unit_interval(part), info)).argmax(1)
                for part in torch.split(user.images, TEST_BATCH)
            ]
            correct.append(int((torch.cat(predicted) == user.labels).sum()))
            tested.append(len(user.labels))
    return PerUserAccuracy(np.array(correct, np.int64), np.array(tested, np.int64))


def deployed_accuracy(
    folder: Path, train: Records, users: list[Records], info: DatasetInfo
) -> PerUserAccuracy:
    """Train the deployed model on `train` and test it on every user's records.

    The result is cached in `folder`, which belongs to the simulation and lies next to the data.
    """
    tensors = [t for records in (train, *users) for t in (records.images, records.labels)]
    stem = file_stem(f"{info.name}-{CLASSIFIER}", tensors, FORM, info, RULES, MAX_IMAGES)

    def read(data: bytes) -> PerUserAccuracy:
        stored = json.loads(data)
        return PerUserAccuracy(*(np.array(stored[name], np.int64) for name in ("right", "asked")))

    def write(result: PerUserAccuracy) -> bytes:
        counts = {"right": result.correct.tolist(), "asked": result.tested.tolist()}
        return json.dumps(counts).encode()

    return get_or_compute(
        folder / f"{stem}.json",
        lambda: per_user_accuracy(train_deployed_model(train, info), users, info),
        read=read,
        write=write,
        damage=(ValueError, KeyError, TypeError),
    )
