"""Sample rows are decoded, and classes take turns."""

from __future__ import annotations

import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.types import Column
from fedsynth.data.tables import table_info
from fedsynth.report.table_samples import ROWS, sample_rows

INFO = table_info(
    "x",
    [Column("age", 0, 100, whole=True), Column("ward", categories=("north", "south"))],
    2,
    class_names=("ill", "well"),
)


def test_rows_are_in_units_and_classes_take_turns() -> None:
    rows = torch.tensor([[0.1, 0.0], [0.2, 1.0], [0.35, 0.2], [1.7, 0.9]])[:, :, None, None]
    table = sample_rows(INFO, SyntheticSet(rows, torch.tensor([0, 0, 0, 1])), "A caption")
    assert [column.heading for column in table.columns] == ["age", "ward", "class"]
    assert [row.cells for row in table.rows] == [
        ("10", "north", "ill"),
        ("100", "south", "well"),
        ("20", "south", "ill"),
        ("35", "north", "ill"),
    ]


def test_there_are_few_rows() -> None:
    rows = torch.rand(50, 2, 1, 1)
    table = sample_rows(INFO, SyntheticSet(rows, torch.arange(50) % 2), "A caption")
    assert len(table.rows) == ROWS
    assert {row.cells[2] for row in table.rows} == {"ill", "well"}
