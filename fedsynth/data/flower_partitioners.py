"""The partitioners of Flower Datasets (`flwr_datasets.partitioner`) on public class counts.

Such a partitioner divides a table of labels. Here the table holds the labels that the class counts
imply and nothing else, so that its result depends on public facts alone; of each part the number of
records per class is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError, allowed, nearest, unknown

PACKAGE = "flwr_datasets"
LABEL = "label"
UNFIT = ("Partitioner", "VerticalEvenPartitioner", "VerticalSizePartitioner")


def flower_counts(
    name: str,
    class_counts: Sequence[int],
    parties: int,
    seed: int,
    settings: Mapping[str, object],
) -> np.ndarray:
    """The number of records of each party and class: int64 [parties, classes].

    Args:
        name: The class of the partitioner.
        class_counts: Public number of records of each class.
        parties: Number of parties.
        seed: Public seed, where the class takes one.
        settings: Further arguments of the class.

    Raises:
        UserError: The package is not installed, or the class does not take these arguments.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise UserError(
            "partition=flower needs flwr-datasets, which is not installed: "
            "pip install 'fedsynth[flwr-datasets]'."
        )
    partitioner = _made(name, parties, seed, settings)
    labels = np.repeat(np.arange(len(class_counts)), class_counts)
    order = np.random.default_rng(seed).permutation(len(labels))
    table: Any = importlib.import_module("datasets").Dataset.from_dict({LABEL: labels[order]})
    try:
        partitioner.dataset = table
        parts = [np.asarray(partitioner.load_partition(k)[LABEL]) for k in range(parties)]
    except (ValueError, KeyError, TypeError, IndexError, AssertionError) as error:
        raise UserError(
            f"partition=flower: {name} cannot divide {len(labels):,} records among {parties} "
            f"parties: {' '.join(str(error).split())}"
        ) from error
    return np.stack([np.bincount(part, minlength=len(class_counts)) for part in parts])


def _made(name: str, parties: int, seed: int, settings: Mapping[str, object]) -> Any:
    module: Any = importlib.import_module(f"{PACKAGE}.partitioner")
    names = [n for n in module.__all__ if n not in UNFIT]
    if name not in names:
        raise unknown("partitioner of Flower Datasets", name, names)
    cls = getattr(module, name)
    known = inspect.signature(cls).parameters
    implied = {"num_partitions": parties, "partition_by": LABEL, "seed": seed}
    options = {key: value for key, value in implied.items() if key in known}
    for key, value in settings.items():
        if key not in known:
            raise UserError(
                f"options.{key}={value!r}: {name} has no such argument.{nearest(key, known)} "
                f"{allowed(known)}"
            )
        options[key] = value
    try:
        return cls(**options)
    except (ValueError, TypeError) as error:
        raise UserError(f"partition=flower: {name}: {' '.join(str(error).split())}") from error
