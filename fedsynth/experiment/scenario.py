"""The data side of a scenario: its stages, the records of its parties, and the test records.

`scenario_stages` reads published class counts only, so that a plan exists before any data is read.
`party_records` and `test_records` read data; only a party's own process needs the former.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch

from fedsynth.core.enums import StageOrder
from fedsynth.core.errors import UserError
from fedsynth.core.randomness import numpy_generator
from fedsynth.core.types import PartyInfo, Stage
from fedsynth.data import holdout, partition
from fedsynth.data import registry as datasets
from fedsynth.data.records import Records
from fedsynth.data.registry import DataSet
from fedsynth.experiment import user_partition
from fedsynth.experiment.evaluation_data import evaluation_data
from fedsynth.experiment.scenario_config import ScenarioConfig, dataset_info, image_transform
from fedsynth.methods.registry import load_plugins

MAX_NAMES = 8  # of parties in a message
GIVEN = "parties"  # the partition that the data state themselves


def _given(scenario: ScenarioConfig) -> DataSet | None:
    """The data set, if it states whose each record is and the partition is to follow that.

    Raises:
        UserError: It states no parties, or another number of them.
    """
    if scenario.partition != GIVEN:
        return None
    data = datasets.find(scenario.data, scenario.data_dir)
    if data.party_of is None:
        raise UserError(
            f"partition={GIVEN}: data={scenario.data} names no parties. Name their column with "
            "`party:` in its schema, or give each a folder; or take another partition."
        )
    if scenario.parties != len(data.parties):
        raise UserError(
            f"parties={scenario.parties}: data={scenario.data} has {len(data.parties)}: "
            f"{_listed(data.parties)}. Allowed: {len(data.parties)}."
        )
    return data


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")


def _given_parts(scenario: ScenarioConfig, data: DataSet, labels: np.ndarray) -> list[np.ndarray]:
    """The indices of each party's records, among those that are not held out."""
    assert data.party_of is not None
    owners = data.party_of()
    if scenario.holdout:
        owners = owners[holdout.holdout(labels, scenario.holdout, scenario.data)[0]]
    return [np.flatnonzero(owners == party) for party in range(len(data.parties))]


def _given_shares(scenario: ScenarioConfig, data: DataSet) -> np.ndarray:
    """The number of records of each class and party, as the data state them."""
    labels = datasets.load(scenario.data, "train", scenario.data_dir)[1].numpy()
    parts = _given_parts(scenario, data, labels)
    kept = labels
    if scenario.holdout:
        kept = labels[holdout.holdout(labels, scenario.holdout, scenario.data)[0]]
    shares = np.stack([np.bincount(kept[p], minlength=data.info.classes) for p in parts])
    if not shares.sum(1).all():
        party = data.parties[int(np.flatnonzero(shares.sum(1) == 0)[0])]
        raise UserError(f"holdout={scenario.holdout:g} leaves party {party!r} without records.")
    return shares


def _kept_counts(scenario: ScenarioConfig) -> tuple[int, ...]:
    """Class counts of the training records that parties may hold."""
    counts = np.array(
        datasets.find(scenario.data, scenario.data_dir).class_counts("train", scenario.data_dir)
    )
    if scenario.holdout:
        counts = counts - holdout.holdout_counts(counts.tolist(), scenario.holdout)
    return tuple(counts.tolist())


def _shares(scenario: ScenarioConfig) -> np.ndarray:
    if user_partition.is_by_users(scenario):
        return user_partition.shares(scenario)
    if (data := _given(scenario)) is not None:
        return _given_shares(scenario, data)
    rng = numpy_generator(scenario.partition_seed, "partition")
    return partition.counts(
        scenario.partition,
        _kept_counts(scenario),
        scenario.parties,
        rng,
        **(scenario.options or {}),
    )


@functools.lru_cache(maxsize=8)
def scenario_stages(scenario: ScenarioConfig) -> tuple[Stage, ...]:
    """The public facts of the stages of a scenario."""
    data = dataset_info(scenario)
    given = _given(scenario)
    names = given.parties if given is not None else ()
    shares = [
        PartyInfo(
            party,
            int(row.sum()),
            {c: int(n) for c, n in enumerate(row) if n},
            names[party] if names else "",
        )
        for party, row in enumerate(_shares(scenario))
    ]
    groups = [(f,) for f in shares] if scenario.stages == StageOrder.IN_TURN else [tuple(shares)]
    stages: list[Stage] = []
    seen: tuple[int, ...] = ()
    for stage, group in enumerate(groups):
        held = {c for f in group for c in f.class_counts}
        classes = tuple(c for c in _order(scenario, data.classes) if c in held)
        seen = (*seen, *(c for c in classes if c not in seen))
        stages.append(Stage(data, stage, len(groups), group, classes, seen))
    return tuple(stages)


def _order(scenario: ScenarioConfig, classes: int) -> tuple[int, ...]:
    """The order of classes: that of the class stages, if the partition has them."""
    if scenario.partition != "classes":
        return tuple(range(classes))
    blocks = partition.class_blocks(
        classes, scenario.parties, (scenario.options or {}).get("order")
    )
    return tuple(c for block in blocks for c in block)


@functools.lru_cache(maxsize=4096)
def party_records(scenario: ScenarioConfig, party: int) -> Records:
    """The records of one party."""
    return transformed(scenario, raw_party_records(scenario, party))


def raw_party_records(scenario: ScenarioConfig, party: int) -> Records:
    """The records of one party as the data set has them, before any transform."""
    if user_partition.is_by_users(scenario):
        return user_partition.records(scenario, party)
    images, labels, parts = _assigned(scenario)
    if len(parts[party]) == len(labels):  # all in order: a memory map stays one
        return Records(images, labels)
    chosen = torch.from_numpy(parts[party])
    return Records(images[chosen], labels[chosen])


def ensure_data(scenario: ScenarioConfig) -> None:
    """Fetch or find all data of a scenario. Records of users are mapped and not read."""
    if user_partition.is_by_users(scenario):
        user_partition.all_users(scenario)
        datasets.load(scenario.data, "test", scenario.data_dir)
        return
    for split in datasets.SPLITS:
        datasets.load(scenario.data, split, scenario.data_dir)


def test_records(scenario: ScenarioConfig) -> Records:
    """The test records of classifiers: the test split, or the hold-out if there is one."""
    if not scenario.holdout:
        return transformed(scenario, Records(*_read(scenario.data, "test", scenario.data_dir)))
    if user_partition.is_by_users(scenario):
        return transformed(scenario, user_partition.held_out(scenario))
    images, labels = _read(scenario.data, "train", scenario.data_dir)
    held = torch.from_numpy(_split(scenario, labels)[1])
    return transformed(scenario, Records(images[held], labels[held]))


def transformed(scenario: ScenarioConfig, records: Records) -> Records:
    """Records after the image transform of a scenario."""
    return Records(image_transform(scenario).apply(records.images), records.labels)


def missing_data(scenario: ScenarioConfig, plugins: tuple[str, ...] = ()) -> str:
    """Why the records of a scenario cannot be read by this process; empty if they can."""
    try:
        load_plugins(plugins)
        ensure_data(scenario)
    except UserError as error:
        return str(error)
    return ""


@functools.lru_cache(maxsize=4)
def _read(name: str, split: str, data_dir: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    return datasets.load(name, split, data_dir)


def _split(scenario: ScenarioConfig, labels: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    return holdout.holdout(labels.numpy(), scenario.holdout, scenario.data)


@functools.lru_cache(maxsize=2)
def _assigned(scenario: ScenarioConfig) -> tuple[torch.Tensor, torch.Tensor, list[np.ndarray]]:
    images, labels = _read(scenario.data, "train", scenario.data_dir)
    everyone = labels.numpy()
    if scenario.holdout:
        kept = torch.from_numpy(_split(scenario, labels)[0])
        images, labels = images[kept], labels[kept]
    if (data := _given(scenario)) is not None:
        return images, labels, _given_parts(scenario, data, everyone)
    rng = numpy_generator(scenario.partition_seed, "assign")
    return images, labels, partition.assign(labels.numpy(), _shares(scenario), rng)


def forget_records() -> None:
    """Drop all records that this process holds in its caches; they are read again when needed."""
    for cached in (party_records, _read, _assigned):
        cached.cache_clear()


def setting_in_words(scenario: ScenarioConfig) -> str:
    """The setting of an evaluation in words, to be printed beside its numbers."""
    tested = evaluation_data({"holdout": scenario.holdout}).name
    if form := image_transform(scenario).in_words():
        tested += f" ({form})"
    if scenario.stages == StageOrder.IN_TURN:
        return (
            f"class-incremental, one head over the classes seen; after each stage tested on "
            f"{tested} of all classes seen so far"
        )
    by_users = user_partition.is_by_users(scenario)
    if scenario.parties == 1:
        who = "one user" if by_users else "one party"
    else:
        who = f"{scenario.parties:,} {'users' if by_users else 'parties'} together"
    return f"{who}, one head over all classes; tested on {tested}"
