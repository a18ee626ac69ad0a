"""The source of an export: decoded columns, and records that are not exported."""

from __future__ import annotations

from pathlib import Path

import certified
import numpy as np
import pytest
import torch

from fedsynth.api.export.source import Source, decoded
from fedsynth.core.errors import UserError
from fedsynth.core.types import Column
from fedsynth.engine.base import Engine


def test_columns_are_decoded_to_their_own_types() -> None:
    columns = (
        Column("age", 0, 10, whole=True),
        Column("x", 0, 2),
        Column("w", categories=("a", "b")),
    )
    frame = decoded(columns, torch.tensor([[0.52, 0.5, 0.9], [2.0, -1.0, 0.1]])[:, :, None, None])
    assert frame["age"].tolist() == [5, 10]
    assert frame["x"].tolist() == [1.0, 0.0]
    assert frame["w"].tolist() == ["b", "a"]
    assert frame["w"].cat.categories.tolist() == ["a", "b"]
    assert frame["age"].dtype == np.int64


def test_unchanged_records_are_not_exported(here: Engine, tmp_path: Path) -> None:
    job = certified.released("upper_bound", tmp_path / "run", here, "table")
    (path,) = (tmp_path / "run" / "disclosed" / job.name).glob("*.npz")
    with pytest.raises(UserError, match="unchanged private records"):
        Source.read(path)
