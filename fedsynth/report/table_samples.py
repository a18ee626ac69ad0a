"""Sample rows of released tables, in the units of the table and with the names of classes."""

from __future__ import annotations

import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.types import DatasetInfo
from fedsynth.data.tables import decode_column
from fedsynth.report.elements import Column, Row, Table

ROWS = 6


def sample_rows(info: DatasetInfo, released: SyntheticSet, caption: str) -> Table:
    """The first rows of each class in turn.

    Args:
        info: The columns of the table.
        released: The rows.
        caption: Of the sample.
    """
    labels = released.labels
    rank = torch.zeros_like(labels)
    for label in torch.unique(labels):
        rank[labels == label] = torch.arange(int((labels == label).sum()))
    chosen = rank.argsort(stable=True)[:ROWS]
    values = [
        decode_column(column, released.pixels()[chosen, position].flatten())
        for position, column in enumerate(info.columns)
    ]
    values.append([info.class_text(label) for label in labels[chosen].tolist()])
    columns = [
        Column(column.name, "label" if column.categories else "number") for column in info.columns
    ]
    rows = [Row(row) for row in zip(*values, strict=True)]
    return Table(caption, [*columns, Column("class", "label")], rows)
