"""Published data sets whose files are replaced by small ones of the same form."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from fedsynth.data import registry as datasets
from fedsynth.data.fetch import known_files as files


def put_small(
    monkeypatch: pytest.MonkeyPatch,
    root: Path,
    name: str,
    contents: Mapping[str, bytes],
    labels: Mapping[str, Sequence[int]],
) -> None:
    """Put files into a data directory and take their hashes for the published ones.

    Args:
        monkeypatch: Undoes it after the test.
        root: The data directory.
        name: The data set.
        contents: The files by name.
        labels: The labels of each split, for the class counts.
    """
    known = []
    for file, content in contents.items():
        path = root / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        known.append(files.VerifiedFile(file, hashlib.sha256(content).hexdigest()))
    small = files.DatasetFiles(name, tuple(known))
    monkeypatch.setattr(files, name.upper(), small)
    monkeypatch.setitem(files.FILE_SETS, name, small)
    old = datasets.find(name)
    counts = {
        split: tuple(np.bincount(found, minlength=old.info.classes).tolist())
        for split, found in labels.items()
    }
    entry = dataclasses.replace(old, train=counts["train"], test=counts["test"])
    monkeypatch.setitem(datasets._registry, name, entry)
