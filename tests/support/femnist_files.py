"""Small files of federated EMNIST in the published formats."""

from __future__ import annotations

import importlib.machinery
import json
import sys
import types

import numpy as np

PEOPLE = {
    "train": {"f0001_02": [3, 35, 61], "f0000_14": [0, 10, 36, 11], "f0002_00": []},
    "test": {"f0000_14": [9, 60]},
}


def drawing(name, split, place):
    """White paper (1.0) with one row of ink, whose position depends on user, split and record."""
    pixels = np.ones((28, 28))
    pixels[(sum(map(ord, name + split)) + place) % 28] = 0.2
    return pixels


def write_leaf(root, people=PEOPLE):
    """LEAF's JSON files."""
    for split, users in people.items():
        folder = root / "femnist" / "data" / split
        folder.mkdir(parents=True, exist_ok=True)
        for number, (name, labels) in enumerate(users.items()):
            x = [drawing(name, split, i).reshape(-1).tolist() for i in range(len(labels))]
            data = {"users": [name], "num_samples": [len(labels)]}
            data["user_data"] = {name: {"x": x, "y": labels}}
            (folder / f"all_data_{number}.json").write_text(json.dumps(data))


def install(monkeypatch, name, **contents):
    """Make a library importable that consists of these names."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def write_tff(root, monkeypatch):
    """TensorFlow Federated's files, and as much of h5py as reads them."""

    class File(dict):
        def __init__(self, path, mode):
            assert mode == "r"
            super().__init__(json.loads(path.read_text()))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    install(monkeypatch, "h5py", File=File)
    (root / "fed_emnist").mkdir()
    for split, users in PEOPLE.items():
        examples = {
            name: {
                "pixels": [drawing(name, split, i).tolist() for i in range(len(labels))],
                "label": labels,
            }
            for name, labels in users.items()
        }
        (root / "fed_emnist" / f"fed_emnist_{split}.h5").write_text(
            json.dumps({"examples": examples})
        )
