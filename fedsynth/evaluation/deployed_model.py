"""The model a developer has in the field, and how often it is right for each user.

The simulation has it answer at every user's home. How often it is right there is a private number:
a user may act on it (`fedsynth.experiment.client_selection`), and nobody else is told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import DatasetInfo
from fedsynth.evaluation.protocols import protocol
from fedsynth.evaluation.train_classifier import fit_network, network, one_thread
from fedsynth.evaluation.types import pixels
from fedsynth.nn.per_example.gradients import logits
from fedsynth.privacy.party_data import Records
from fedsynth.storage.disk_cache import file_stem, get_or_compute

FORM = 1  # raise it when what is kept changes
KIND = "lenet"
RULES = replace(protocol("P"), batch=64, augmentation="none")
PASSES = 60_000  # image passes of its training
AT_ONCE = 500


@dataclass(frozen=True)
class PerUserAccuracy:
    """For how many of their records each user gets the right answer."""

    right: np.ndarray  # int64 [users]
    asked: np.ndarray  # int64 [users], at least 1 each

    @property
    def accuracies(self) -> np.ndarray:
        """The share of right answers of each user."""
        return self.right / self.asked


def deployed(taught: Records, info: DatasetInfo) -> torch.nn.Module:
    """A small CNN trained on these records, upright as they are; the same on every machine."""
    key = ("deployed", info.name, len(taught.labels))
    net = network(KIND, info, info.classes, 0, key)
    with one_thread():
        fit_network(
            net,
            RULES.scaled(pixels(taught.images), info),
            taught.labels,
            plan=RULES.schedule(len(taught.labels), max_images=PASSES),
            rules=RULES,
            strategy=(),
            generator=torch_generator(*key, "training"),
        )
    return net.eval()


def answers(net: torch.nn.Module, users: Iterable[Records], info: DatasetInfo) -> PerUserAccuracy:
    """What the model is worth to each user, asked about all of their records."""
    right, asked = [], []
    with torch.inference_mode(), one_thread():
        for mine in users:
            said = [
                logits(net, RULES.scaled(pixels(part), info)).argmax(1)
                for part in mine.images.split(AT_ONCE)
            ]
            right.append(int((torch.cat(said) == mine.labels).sum()))
            asked.append(len(mine.labels))
    return PerUserAccuracy(np.array(right, np.int64), np.array(asked, np.int64))


def kept_answers(
    folder: Path, taught: Records, users: list[Records], info: DatasetInfo
) -> PerUserAccuracy:
    """`answers` of the model that `taught` makes, from `folder` or put there: the simulation's own
    books, beside the data itself."""
    tensors = [t for each in (taught, *users) for t in (each.images, each.labels)]
    stem = file_stem(f"{info.name}-{KIND}", tensors, FORM, info, RULES, PASSES)

    def read(data: bytes) -> PerUserAccuracy:
        found = json.loads(data)
        return PerUserAccuracy(*(np.array(found[name], np.int64) for name in ("right", "asked")))

    def write(found: PerUserAccuracy) -> bytes:
        return json.dumps({"right": found.right.tolist(), "asked": found.asked.tolist()}).encode()

    return get_or_compute(
        folder / f"{stem}.json",
        lambda: answers(deployed(taught, info), users, info),
        read=read,
        write=write,
        damage=(ValueError, KeyError, TypeError),
    )
