"""Codes of columns: there and back, merged by counts, and nothing taken from the data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsynth.core.types import Column
from fedsynth.data import registry as datasets
from fedsynth.data.tables import decode_column, encode_column
from fedsynth.methods.marginals.domain import CoarseCodes, FineCodes, fine_codes, merge

AGE = Column("age", 18, 27, whole=True)
WAGE = Column("wage", 0, 1000)
WARD = Column("ward", categories=("north", "south", "east"))
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("column", "bins", "size"), [(AGE, 10, 10), (AGE, 4, 6), (WAGE, 20, 22), (WARD, 2, 3)]
)
def test_decoding_gives_a_value_of_the_same_code(column, bins, size):
    codes = FineCodes.of(column, bins)
    assert codes.size == size
    every = np.arange(size).repeat(50)
    decoded = torch.from_numpy(codes.decode(every, RNG)).float()
    assert codes.encode(decoded).tolist() == every.tolist()
    assert 0 <= decoded.min() <= decoded.max() <= 1


def test_single_values_are_restored_exactly():
    for column, texts in ((AGE, [str(age) for age in range(18, 28)]), (WARD, WARD.categories)):
        codes = FineCodes.of(column, 50)
        encoded = torch.from_numpy(encode_column(column, texts, "test"))
        back = torch.from_numpy(codes.decode(codes.encode(encoded).numpy(), RNG)).float()
        assert decode_column(column, back) == list(texts)


def test_the_ends_of_a_range_are_kept_exactly():
    codes = FineCodes.of(WAGE, 10)
    found = codes.encode(torch.tensor([0.0, 1e-6, 0.0999, 0.1001, 0.99999, 1.0]))
    assert found.tolist() == [0, 1, 1, 2, 10, 11]
    assert codes.decode(np.array([0, 11, 0]), RNG).tolist() == [0, 1, 0]
    inner = codes.decode(np.arange(1, 11).repeat(20), RNG)
    assert 0 < inner.min() < inner.max() < 1


def test_values_outside_of_the_range_and_no_numbers_have_a_code():
    wild = torch.tensor([-3.0, 2.0, float("nan"), float("inf"), float("-inf")])
    for codes in (FineCodes.of(c, 5) for c in (AGE, WAGE, WARD)):
        found = codes.encode(wild)
        assert 0 <= found.min() <= found.max() < codes.size


def test_the_codes_of_a_table_come_from_its_schema():
    info = datasets.find("made_table").info
    assert [c.size for c in fine_codes(info, 30)] == [32, 32, 32, 32, 5, 2, 3]


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=40), st.floats(0, 500), st.floats(0, 2000))
def test_coarse_codes_of_numbers_are_intervals_without_gaps(counts, few, more):
    column = Column("n", 0, max(1, len(counts) - 1), whole=True)
    codes = FineCodes(column, len(counts), True)
    coarse = merge(codes, np.array(counts), few, few + more)
    assert set(np.diff(coarse)) <= {0, 1}
    assert coarse[0] == 0
    totals = np.bincount(coarse, counts)
    if sum(counts) >= few and len(totals) > 1:
        assert totals.min() >= few * (1 - 1e-9)


def test_a_number_that_many_records_share_keeps_a_code_of_its_own():
    counts = np.array([5.0, 40, 900, 3, 4, 60, 2])
    codes = FineCodes(Column("gain", 0, 6, whole=True), 7, True)
    coarse = merge(codes, counts, few=10, enough=100)
    assert coarse.tolist() == [0, 0, 1, 2, 2, 2, 2]


def test_rare_categories_are_one_and_frequent_ones_stay():
    codes = FineCodes.of(Column("c", categories=tuple("abcde")), 0)
    assert merge(codes, np.array([1.0, 50, 0, 60, 2]), 10, 99).tolist() == [2, 0, 2, 1, 2]
    assert merge(codes, np.zeros(5), 10, 99).tolist() == [0] * 5
    assert merge(codes, np.full(5, 50.0), 10, 99).tolist() == [0, 1, 2, 3, 4]


def test_fine_codes_are_drawn_by_their_counts_within_the_coarse_one():
    fine = FineCodes.of(Column("c", categories=tuple("abcd")), 0)
    counts = np.array([[7.0, 30, 10, 0], [1, 0, 5, 2]])
    codes = CoarseCodes(fine, np.array([0, 1, 1, 2]), counts)
    assert codes.size == 3
    assert codes.members().tolist() == [1, 2, 1]
    assert codes.sums(counts).tolist() == [[7, 40, 0], [1, 5, 2]]
    expected = [[1, 0, 0, 0], [0, 0.75, 0.25, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(codes.spread(0), expected)
    np.testing.assert_allclose(codes.spread(1), [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    encoded = torch.tensor([0.0, 1 / 3, 2 / 3, 1.0])
    assert codes.encode(encoded).tolist() == [0, 1, 1, 2]
