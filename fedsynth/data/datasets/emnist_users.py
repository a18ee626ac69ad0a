"""`emnist_users`: federated EMNIST from any source, else the nearest substitute.

The order is: federated EMNIST (LEAF, TensorFlow Federated, Flower Datasets), MNIST by its real
writers, MNIST by virtual writers. The data set that is taken has a name of its own, which the plan,
the configuration, the log and the report state; nothing is substituted silently.
"""

from __future__ import annotations

import numpy as np

from fedsynth.core.errors import UserError, unknown
from fedsynth.core.types import DatasetInfo
from fedsynth.data.datasets import femnist as federated
from fedsynth.data.datasets import mnist_virtual, mnist_writers
from fedsynth.data.formats import femnist
from fedsynth.data.registry import dataset
from fedsynth.data.users import Folder

NAME = "emnist_users"
SOURCES = {
    "leaf": "femnist_leaf",
    "tff": "femnist_tff",
    "flower": "femnist_flower",
    "writers": mnist_writers.NAME,
    "virtual": mnist_virtual.NAME,
}
AUTO = "auto"


def find(source: str, data_dir: Folder) -> tuple[str, tuple[str, ...]]:
    """The data set to take for `data=emnist_users`.

    Args:
        source: `auto`, or one of `SOURCES`.
        data_dir: The data directory, None for the default.

    Returns:
        The name of the data set, and the reason against each source that was tried before it.

    Raises:
        UserError: The source is unknown or not available.
    """
    if source not in (AUTO, *SOURCES):
        raise unknown("source", source, (AUTO, *SOURCES))
    tried: list[str] = []
    for short, name in SOURCES.items():
        if source not in (AUTO, short):
            continue
        reason = _unavailable(name, data_dir) or (_not_at_hand(name) if source == AUTO else None)
        if reason is None:
            return name, tuple(tried)
        tried.append(f"{short}: {reason}")
    raise UserError(
        f"data={NAME} source={source} cannot be had. Tried:\n"
        + "".join(f"  - {line}\n" for line in tried)
        + "What to do: put the files into one of the folders named (data_dir=... or FEDSYNTH_DATA "
        "names the first part), or take another source: " + ", ".join((AUTO, *SOURCES)) + "."
    )


def _unavailable(name: str, data_dir: Folder) -> str | None:
    if name in federated.READERS:
        return federated.unavailable(name, data_dir)
    return mnist_writers.unavailable(data_dir) if name == mnist_writers.NAME else None


def _not_at_hand(name: str) -> str | None:
    """The reason why `source=auto` passes over a source that would have to be downloaded."""
    cache = femnist.flower_cache()
    if name != "femnist_flower" or cache.is_dir():
        return None
    return f"there is no {cache} (source=flower downloads it from Hugging Face)"


@dataset(
    DatasetInfo(
        NAME, (1, femnist.SIDE, femnist.SIDE), femnist.CLASSES, federated.MEAN, federated.STD
    ),
    train=(),
    test=(),
    about="federated EMNIST by users, from any source (source=), else MNIST by its writers",
)
def emnist_users(_split: str, _data_dir: Folder) -> tuple[np.ndarray, np.ndarray]:
    """Never read: the configuration names the data set that was found."""
    raise UserError(f"data={NAME} is replaced when a run is configured; see source=.")
