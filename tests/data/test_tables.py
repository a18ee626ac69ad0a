"""Tables: what is written is what comes back, and nothing but the public columns decides how."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.enums import DataKind
from fedsynth.core.errors import UserError
from fedsynth.core.types import Column
from fedsynth.data import registry as datasets
from fedsynth.data import tables

AGE = Column("age", 10, 90, whole=True)
COLOUR = Column("colour", categories=("red", "green", "blue, light"))
PRICE = Column("price", -5, 5)
FACTS = tables.table_info("things", (AGE, COLOUR, PRICE), 2)


def test_values_are_places_in_the_public_range_and_codes():
    rows = tables.encode(
        FACTS.columns, [["10", "50", "95"], ["red", "blue, light", "green"], [0, 5, -9]], "here"
    )
    assert rows.dtype == np.float32
    assert rows.shape == (3, *FACTS.shape)
    assert rows[:, :, 0, 0].tolist() == [[0, 0, 0.5], [0.5, 1, 1], [1, 0.5, 0]]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(10, 90), st.sampled_from(COLOUR.categories), st.integers(-500, 500)),
        min_size=1,
        max_size=20,
    )
)
def test_what_is_written_is_read_again(records):
    """Also through CSV, whose quotes and commas are where a spreadsheet expects them."""
    ages, colours, cents = zip(*records, strict=True)
    prices = [c / 100 for c in cents]
    rows = torch.from_numpy(tables.encode(FACTS.columns, [ages, colours, prices], "here"))
    text = tables.to_csv(FACTS, rows, torch.arange(len(records)))
    header, *lines = csv.reader(io.StringIO(text))
    assert header == ["age", "colour", "price", "label"]
    for row, (age, colour, price) in enumerate(zip(ages, colours, prices, strict=True)):
        assert lines[row][:2] == [str(age), colour]
        assert float(lines[row][2]) == pytest.approx(price, abs=1e-5)
        assert lines[row][3] == str(row)


def test_one_hot_and_back():
    generator = torch.Generator().manual_seed(0)
    colours = torch.randint(0, 3, (50,), generator=generator)
    rows = torch.stack([torch.rand(50, generator=generator), colours / 2, torch.rand(50)], 1)
    numbers, categories = tables.one_hot(FACTS, rows[:, :, None, None])
    assert torch.equal(numbers, rows[:, [0, 2]])
    assert torch.equal(categories.argmax(1), colours)
    assert torch.equal(categories.sum(1), torch.ones(50))
    assert torch.equal(tables.from_one_hot(FACTS, numbers, categories)[:, :, 0, 0], rows)


@pytest.mark.parametrize(("value", "expected"), [(-3.0, "red"), (7.0, "blue, light")])
def test_what_noise_has_moved_outside_is_moved_to_the_nearer_end(value, expected):
    assert tables.decode_column(COLOUR, torch.tensor([value])) == [expected]
    assert tables.decode_column(AGE, torch.tensor([value])) == ["10" if value < 0 else "90"]
    assert tables.decode_column(AGE, torch.tensor([float("nan")])) == ["10"]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (
            AGE,
            ["20", "old", "30", ""],
            r"own.csv: column 'age' of record 2 \(and 1 more\) is not a",
        ),
        (AGE, [20.0, float("nan")], "column 'age' of record 2 is not a number"),
        (AGE, [float("inf"), 20.0], "column 'age' of record 1 is not a number"),
        (COLOUR, ["red", "violet"], "of record 2 is not one of 3 categories: red, green, blue"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_place_and_not_repeated(column, values, message):
    with pytest.raises(UserError, match=message) as caught:
        tables.encode_column(column, values, "own.csv")
    assert not any(str(v) in str(caught.value) for v in values if v in {"old", "violet"})


def test_the_made_table_is_a_table():
    known = datasets.find("made_table")
    assert known.info.kind == DataKind.TABLE
    assert known.info.shape == (len(known.info.columns), 1, 1)
    rows, _ = datasets.load("made_table", "train")
    assert torch.equal(rows, datasets.load("made_table", "train")[0])
    for i, column in enumerate(known.info.columns):
        values = rows[:, i].flatten()
        assert 0 <= values.min() < values.max() <= 1
        if column.categories:
            assert set(tables.decode_column(column, values)) == set(column.categories)
