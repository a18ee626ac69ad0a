"""The schema of a release: its arrays with types and shapes, and the public facts of the data."""

from __future__ import annotations

from typing import Any

from fedsynth.core.outcomes import Outcome, ReleasedModel, SyntheticSet
from fedsynth.core.types import Column, DatasetInfo
from fedsynth.data.formats.npz import public_name


def array_schema(outcome: Outcome) -> dict[str, Any]:
    """The kind of a release and the type and shape of each array, as they are in its file."""
    if isinstance(outcome, ReleasedModel):
        kind, arrays = "model", outcome.state
    else:
        kind, arrays = "synthetic set", outcome.to_arrays()
    shapes = {
        name: {"type": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
        for name, value in sorted(arrays.items())
    }
    return {"kind": kind, "arrays": shapes}


def data_schema(outcome: Outcome, info: DatasetInfo, classes: tuple[int, ...]) -> dict[str, Any]:
    """The schema of a release and of the data behind it.

    Args:
        outcome: The release.
        info: The public facts of the data set.
        classes: The classes of the stage.
    """
    raw = isinstance(outcome, SyntheticSet) and outcome.raw
    return {
        **array_schema(outcome),
        "raw_records": raw,
        "data": {
            "name": public_name(info.name),
            "kind": info.kind.value,
            "record_shape": list(info.shape),
            "values": "0 to 1 per value; noise may put released values outside",
            "classes": info.classes,
            "classes_of_stage": list(classes),
            **({"class_names": list(info.class_names)} if info.class_names else {}),
            "columns": [_column(column) for column in info.columns],
        },
    }


def _column(column: Column) -> dict[str, Any]:
    if column.categories:
        return {"name": column.name, "categories": list(column.categories)}
    return {"name": column.name, "low": float(column.low), "high": float(column.high)} | (
        {"whole": True} if column.whole else {}
    )
