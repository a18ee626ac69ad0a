"""Flower Datasets' partitioners divide public class counts."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fedsynth.core.errors import UserError
from fedsynth.data import partition

COUNTS = (40, 30, 50)


def shares(parties: int = 4, seed: int = 0, **options: object) -> np.ndarray:
    return partition.counts("flower", COUNTS, parties, np.random.default_rng(seed), **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"name": "DirichletPartitioner", "alpha": 0.5, "min_partition_size": 1},
        {"name": "PathologicalPartitioner", "num_classes_per_partition": 2},
        {"name": "ShardPartitioner", "num_shards_per_partition": 2},
        {"name": "LinearPartitioner"},
    ],
)
def test_every_record_goes_to_one_party(options: dict[str, object]) -> None:
    found = shares(**options)
    assert found.shape == (4, 3)
    assert found.sum(0).tolist() == list(COUNTS)
    assert (shares(**options) == found).all()


def test_the_partitioner_does_what_its_name_says() -> None:
    assert np.ptp(shares().sum(1)) == 0
    pathological = shares(name="PathologicalPartitioner", num_classes_per_partition=1)
    assert ((pathological > 0).sum(1) == 1).all()
    sizes = shares(name="LinearPartitioner").sum(1)
    assert (np.diff(sizes) > 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "IdPartitioner"}, "unknown partitioner of Flower Datasets 'IdPartitioner'"),
        ({"name": "ShardPartitioner", "shards": 2}, "options.shards=2: ShardPartitioner has no"),
        ({"name": "DirichletPartitioner", "alpha": -1}, "flower: DirichletPartitioner"),
        ({"name": "DirichletPartitioner"}, "missing 1 required positional argument: 'alpha'"),
        ({"party": 3}, "options.party=3: IidPartitioner has no such argument"),
    ],
)
def test_what_is_wrong_is_one_message(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        shares(**options)


def test_without_the_package_the_message_says_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with pytest.raises(UserError, match="pip install 'fedsynth\\[flwr-datasets\\]'"):
        shares()
