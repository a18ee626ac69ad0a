"""Column shapes and pair trends are those of SDMetrics, whose numbers are stored here."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth.core.types import Column
from fedsynth.data.tables import table_info
from fedsynth.evaluation.table_quality import TableColumn, table_columns, table_quality

# KSComplement, TVComplement, CorrelationSimilarity and ContingencySimilarity of SDMetrics 0.32.0
SHAPES = (0.67, 0.8058333333333334, 0.7066666666666667, 0.7791666666666667)
TRENDS = {
    (0, 1): 0.9546759541158935,
    (0, 2): 0.5341666666666667,
    (0, 3): 0.685,
    (1, 2): 0.6008333333333333,
    (1, 3): 0.73,
    (2, 3): 0.675,
}


def drawn(seed: int, rows: int, shift: int) -> list[TableColumn]:
    """Two numeric columns, of which one has ties, and two categorical ones."""
    draw = np.random.default_rng(seed)
    first = np.round(draw.normal(40 + shift, 10, rows))
    second = first * 2 + draw.normal(0, 30, rows)
    third = draw.integers(0, 3 + (shift > 0), rows)
    fourth = (first + draw.normal(0, 10, rows) > 40).astype(int)
    return [
        *(TableColumn(values, False) for values in (first, second)),
        *(TableColumn(values, True) for values in (third, fourth)),
    ]


def test_the_numbers_are_those_of_sdmetrics() -> None:
    quality = table_quality(drawn(1, 400, 0), drawn(2, 150, 7))
    assert quality.shapes == pytest.approx(SHAPES, abs=1e-12)
    assert quality.trends == pytest.approx(TRENDS, abs=1e-12)
    rows = quality.rows()
    assert rows["column_shapes"] == pytest.approx(sum(SHAPES) / 4)
    assert rows["pair_trends"] == pytest.approx(sum(TRENDS.values()) / 6)
    assert rows["shape_of_column_3"] == quality.shapes[2]


def test_equal_tables_are_perfect_and_separate_ones_the_opposite() -> None:
    table = drawn(3, 200, 0)
    same = table_quality(table, table)
    assert same.shapes == pytest.approx([1.0] * 4)
    assert list(same.trends.values()) == pytest.approx([1.0] * 6)
    other = [TableColumn(column.values + 10_000, column.categorical) for column in table]
    far = table_quality(table, other)
    assert far.shapes == pytest.approx([0.0] * 4)
    assert far.trends[2, 3] == pytest.approx(0.0)


def test_a_constant_column_has_a_shape_and_no_correlation() -> None:
    real = drawn(4, 100, 0)[:2]
    flat = [TableColumn(np.full(50, 40.0), False), drawn(5, 50, 0)[1]]
    quality = table_quality(real, flat)
    assert math.isnan(quality.trends[0, 1])
    assert "pair_trends" not in quality.rows()
    assert quality.rows()["column_shapes"] > 0


def test_columns_are_read_as_a_reader_sees_them() -> None:
    info = table_info(
        "x",
        [Column("age", 0, 100, whole=True), Column("ward", categories=("a", "b", "c"))],
        2,
    )
    rows = torch.tensor([[0.123, 0.4], [1.5, -1.0], [float("nan"), 1.0]])[:, :, None, None]
    age, ward, label = table_columns(info, rows, torch.tensor([1, 0, 1]))
    assert age.values.tolist() == [12.0, 100.0, 0.0]
    assert (age.categorical, ward.categorical, label.categorical) == (False, True, True)
    assert ward.values.tolist() == [1, 0, 2]
    assert label.values.tolist() == [1, 0, 1]


def test_sdmetrics_itself_agrees_on_other_tables() -> None:
    """With the extra `sdmetrics`; the numbers above are stored for machines without it."""
    pytest.importorskip("sdmetrics")
    from sdmetrics import column_pairs, single_column

    real, released = drawn(11, 700, 1), drawn(12, 300, 4)
    frames = [pd.DataFrame({str(i): c.values for i, c in enumerate(t)}) for t in (real, released)]
    quality = table_quality(real, released)
    for index, column in enumerate(real):
        metric = single_column.TVComplement if column.categorical else single_column.KSComplement
        theirs = metric.compute(*(frame[str(index)] for frame in frames))
        assert quality.shapes[index] == pytest.approx(theirs, abs=1e-12)
    both = [frame[["0", "1"]] for frame in frames]
    theirs = column_pairs.CorrelationSimilarity.compute(*both)
    assert quality.trends[0, 1] == pytest.approx(theirs, abs=1e-12)
    both = [frame[["2", "3"]] for frame in frames]
    theirs = column_pairs.ContingencySimilarity.compute(*both)
    assert quality.trends[2, 3] == pytest.approx(theirs, abs=1e-12)
