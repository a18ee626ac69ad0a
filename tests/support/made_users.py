"""Virtual users, some hard to classify, for the tests of client selection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedsynth.core.types import DatasetInfo
from fedsynth.data import registry as datasets
from fedsynth.data.registry import DataSet
from fedsynth.data.users import UserIndex, UserRecords
from fedsynth.evaluation import deployed_model as deployed
from fedsynth.experiment import user_partition
from fedsynth.experiment.scenario import ScenarioConfig, party_records, scenario_stages

USERS, EACH = 24, 10


def made() -> UserRecords:
    """Two classes, a bright upper or a bright lower half; every third user mislabels two of ten."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, USERS * EACH)
    images = rng.integers(0, 40, (USERS * EACH, 1, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[0, 4 + 12 * label : 12 + 12 * label, 4:24] += 200
    for user in range(0, USERS, 3):
        labels[user * EACH : user * EACH + 2] ^= 1
    return UserRecords(images, labels, np.arange(0, USERS * EACH + 1, EACH))


def forget() -> None:
    """Clear what a process caches of its users."""
    for cached in (
        user_partition._counts,
        user_partition._selected,
        scenario_stages,
        party_records,
    ):
        cached.cache_clear()


def world_of_users(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[ScenarioConfig]:
    """A data set of users, a folder for what is kept, and a model that is quick to train."""
    known = DataSet(
        DatasetInfo("made_users", (1, 28, 28), 2, (0.2,), (0.3,)),
        train=(), test=(), about="made-up users", made=True,
        reader=lambda *_: (made().images, made().labels.astype(np.int64)),
        owners=UserIndex(lambda *_: made(), lambda *_: made().counts(2)),
    )  # fmt: skip
    monkeypatch.setitem(datasets._registry, "made_users", known)
    monkeypatch.setattr(deployed, "MAX_IMAGES", 3000)
    forget()
    yield ScenarioConfig(
        data="made_users", partition="users", parties=0, stages="together", data_dir=str(folder),
        options={"flip": 0.5, "chosen": "low", "volunteers": 0.3},
    )  # fmt: skip
    forget()
