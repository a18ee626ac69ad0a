"""Who holds what, and when they are asked: a scenario's data side, public facts apart from data.

`scenario_stages` reads published class counts only, so a plan exists before any data is read.
`party_records` and `test_records` read; only a party's own process needs the former.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedsynth.core.randomness import numpy_generator
from fedsynth.core.settings import setting
from fedsynth.core.types import DatasetInfo, PartyInfo, Stage
from fedsynth.data import holdout, partition
from fedsynth.data import registry as datasets
from fedsynth.data.datasets.emnist_users import AUTO, SOURCES
from fedsynth.data.image_transform import ImageTransform
from fedsynth.experiment import user_partition as population
from fedsynth.privacy.party_data import Records


@dataclass(frozen=True)
class ScenarioConfig:
    """A data set, how it is cut among parties, and whether they are asked in turn or together."""

    data: str = setting("mnist", "data set")
    partition: str = setting("classes", "how records are dealt to parties")
    options: dict[str, Any] | None = setting(None, "options of the partitioner")  # noqa: RUF009
    parties: int = setting(5, "number of parties; 0: every user of the data", at_least=0)
    stages: str = setting(
        "in_turn",
        "in_turn: each party is a stage of its own; together: one stage asks all",
        choices=("in_turn", "together"),
    )
    partition_seed: int = setting(0, "public seed of the partition", at_least=0)
    resize: int | None = setting(None, "side that images are made to (bilinear)", at_least=4)
    grey: bool = setting(False, "images in colour are made grey")
    holdout: float = setting(
        0.0,
        "training records held out to choose settings on: a share below 1 or a number",
        at_least=0,
    )
    data_dir: str | None = setting(None, "where data is kept; default FEDSYNTH_DATA or the cache")
    source: str = setting(
        AUTO,
        "of data=emnist_users: which to take; auto: the first there is",
        choices=(AUTO, *SOURCES),
    )

    def __hash__(self) -> int:
        return hash((self.data, self.partition, repr(self.options), self.parties, self.stages))


def info(world: ScenarioConfig) -> DatasetInfo:
    """What is public about the data of a world, in the form in which its parties see them."""
    return _form(world).info(datasets.find(world.data).info)


def _form(world: ScenarioConfig) -> ImageTransform:
    return ImageTransform(world.resize, world.grey)


def _kept_counts(world: ScenarioConfig) -> tuple[int, ...]:
    """Class counts of the training records that parties may hold."""
    counts = np.array(datasets.find(world.data).class_counts("train", world.data_dir))
    if world.holdout:
        counts = counts - holdout.holdout_counts(counts.tolist(), world.holdout)
    return tuple(counts.tolist())


def _shares(world: ScenarioConfig) -> np.ndarray:
    if population.is_one(world):
        return population.shares(world)
    rng = numpy_generator(world.partition_seed, "partition")
    return partition.counts(
        world.partition, _kept_counts(world), world.parties, rng, **(world.options or {})
    )


@functools.lru_cache(maxsize=8)
def scenario_stages(world: ScenarioConfig) -> tuple[Stage, ...]:
    """The stages of this world as everybody may know them."""
    data = info(world)
    shares = [
        PartyInfo(party, int(row.sum()), {c: int(n) for c, n in enumerate(row) if n})
        for party, row in enumerate(_shares(world))
    ]
    groups = [(f,) for f in shares] if world.stages == "in_turn" else [tuple(shares)]
    made: list[Stage] = []
    seen: tuple[int, ...] = ()
    for stage, group in enumerate(groups):
        held = {c for f in group for c in f.class_counts}
        classes = tuple(c for c in _order(world, data.classes) if c in held)
        seen = (*seen, *(c for c in classes if c not in seen))
        made.append(Stage(data, stage, len(groups), group, classes, seen))
    return tuple(made)


def _order(world: ScenarioConfig, classes: int) -> tuple[int, ...]:
    """The order in which classes are named: that of the class stages where there are some."""
    if world.partition != "classes":
        return tuple(range(classes))
    blocks = partition.class_blocks(classes, world.parties, (world.options or {}).get("order"))
    return tuple(c for block in blocks for c in block)


@functools.lru_cache(maxsize=4096)
def party_records(world: ScenarioConfig, party: int) -> Records:
    """The records of one party."""
    if population.is_one(world):
        return _formed(world, population.records(world, party))
    images, labels, parts = _dealt(world)
    if len(parts[party]) == len(labels):  # all, in their order: what may be a memory map stays one
        return _formed(world, Records(images, labels))
    chosen = torch.from_numpy(parts[party])
    return _formed(world, Records(images[chosen], labels[chosen]))


def need_data(world: ScenarioConfig) -> None:
    """Fetch or find all data of this world; of users' records nothing is read, they are mapped."""
    if population.is_one(world):
        population.everybody(world)
        datasets.load(world.data, "test", world.data_dir)
        return
    for split in datasets.SPLITS:
        datasets.load(world.data, split, world.data_dir)


def test_records(world: ScenarioConfig) -> Records:
    """What classifiers are tested on: the test split, or the hold-out where there is one."""
    if not world.holdout:
        return _formed(world, Records(*_read(world.data, "test", world.data_dir)))
    if population.is_one(world):
        return _formed(world, population.held_out(world))
    images, labels = _read(world.data, "train", world.data_dir)
    held = torch.from_numpy(_split(world, labels)[1])
    return _formed(world, Records(images[held], labels[held]))


def _formed(world: ScenarioConfig, records: Records) -> Records:
    return Records(_form(world).apply(records.images), records.labels)


@functools.lru_cache(maxsize=4)
def _read(name: str, split: str, data_dir: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    return datasets.load(name, split, data_dir)


def _split(world: ScenarioConfig, labels: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    return holdout.holdout(labels.numpy(), world.holdout, world.data)


@functools.lru_cache(maxsize=2)
def _dealt(world: ScenarioConfig) -> tuple[torch.Tensor, torch.Tensor, list[np.ndarray]]:
    images, labels = _read(world.data, "train", world.data_dir)
    if world.holdout:
        kept = torch.from_numpy(_split(world, labels)[0])
        images, labels = images[kept], labels[kept]
    rng = numpy_generator(world.partition_seed, "assign")
    return images, labels, partition.assign(labels.numpy(), _shares(world), rng)


def setting_in_words(world: ScenarioConfig) -> str:
    """What the numbers mean, to be printed beside them."""
    tested = "the hold-out of the training data" if world.holdout else "the test data"
    if form := _form(world).in_words():
        tested += f" ({form})"
    if world.stages == "in_turn":
        return (
            f"class-incremental, one head over the classes seen; after each stage tested on "
            f"{tested} of all classes seen so far"
        )
    who = "users" if population.is_one(world) else "parties"
    return f"{world.parties:,} {who} together, one head over all classes; tested on {tested}"
