"""Federated EMNIST by its writers: one data set per published file format."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo
from fedsynth.data.cache import user_records
from fedsynth.data.formats import femnist
from fedsynth.data.registry import dataset
from fedsynth.data.users import Folder, UserIndex, UserRecords

# Published for LEAF's images (0.9618, 0.1644), which are white paper; here paper is black.
MEAN, STD = (0.0382,), (0.1644,)

READERS = {
    "femnist_leaf": femnist.read_leaf,
    "femnist_tff": femnist.read_tff,
    "femnist_flower": femnist.read_flower,
}
ABOUT = {
    "femnist_leaf": "federated EMNIST, about 3,400 writers: LEAF's json files",
    "femnist_tff": "federated EMNIST, 3,400 writers: TensorFlow Federated's HDF5 files",
    "femnist_flower": "federated EMNIST, about 3,600 writers: Flower Datasets' flwrlabs/femnist",
}


def unavailable(name: str, data_dir: Folder) -> str | None:
    """The reason why this source cannot be read and a remedy, or None if it can."""
    if name == "femnist_flower":
        if importlib.util.find_spec("flwr_datasets") is None:
            return "flwr_datasets is not installed (pip install 'flwr-datasets[vision]')"
        return None
    if name == "femnist_leaf":
        places = ", ".join(str(place) for place in femnist.leaf_places(data_dir))
        return None if femnist.leaf_folder(data_dir) else f"no train/*.json in {places}"
    for split in user_records.SPLITS:
        if femnist.tff_file(data_dir, split) is None:
            places = ", ".join(str(place) for place in femnist.tff_places(data_dir, split))
            return f"none of {places}"
    return None


@functools.lru_cache(maxsize=8)
def records(name: str, split: str, data_dir: Folder) -> UserRecords:
    """The records of one split by their writers."""
    if reason := unavailable(name, data_dir):
        raise UserError(f"data={name} cannot be had: {reason}.")
    files = femnist.source_files(name, data_dir)
    return user_records.records(name, split, data_dir, READERS[name], files)


def _owners(name: str) -> UserIndex:
    return UserIndex(
        read=lambda _, data_dir: records(name, "train", data_dir),
        counts=lambda _, data_dir: records(name, "train", data_dir).counts(femnist.CLASSES),
    )


def _register(name: str) -> None:
    @dataset(
        DatasetInfo(name, (1, femnist.SIDE, femnist.SIDE), femnist.CLASSES, MEAN, STD),
        train=(),
        test=(),
        about=ABOUT[name],
        owners=_owners(name),
    )
    def read(split: str, data_dir: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
        users = records(name, split, data_dir)
        return users.images, users.labels


for _name in READERS:
    _register(_name)
