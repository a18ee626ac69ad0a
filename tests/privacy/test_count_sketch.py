"""Count sketches: linear, exact without collisions, and never longer than said."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.privacy.count_sketch import CountSketch


def test_with_more_buckets_than_it_needs_it_gives_the_vector_back():
    sketch = CountSketch(6, 5, 4000, "wide")
    vectors = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(sketch.estimate(sketch.table(vectors)), vectors)


@given(st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_the_table_is_a_sum_of_signs_by_bucket_and_linear(seed):
    sketch = CountSketch(9, 3, 4, seed)
    a, b = torch.randn(2, 1, 9, generator=torch.Generator().manual_seed(seed))
    naive = torch.zeros(3, 4)
    for row, j in itertools.product(range(3), range(9)):
        naive[row, sketch.buckets[row, j]] += sketch.signs[row, j] * a[0, j]
    torch.testing.assert_close(sketch.table(a)[0], naive)
    torch.testing.assert_close(sketch.table(a) + sketch.table(b), sketch.table(a + b))


@pytest.mark.parametrize("entries", [1, 2, 3])
def test_no_sparse_vector_of_signs_reaches_further_and_one_gets_near(entries):
    """All of them, by hand; with one table the bound is met."""
    for rows in (1, 3):
        sketch = CountSketch(7, rows, 3, "small")
        longest = 0.0
        for places in itertools.combinations(range(7), entries):
            for signs in itertools.product((-1.0, 1.0), repeat=entries):
                vector = torch.zeros(1, 7)
                vector[0, list(places)] = torch.tensor(signs)
                longest = max(longest, float(sketch.table(vector).norm()))
        assert longest <= sketch.reach(entries) * (1 + 1e-6)
        if rows == 1:
            assert longest == pytest.approx(sketch.reach(entries))


def test_in_one_bucket_everything_collides_and_in_many_almost_nothing():
    assert CountSketch(8, 5, 1, "one").reach(3) == pytest.approx(3 * math.sqrt(5))
    assert CountSketch(784, 1, 10**9, "many").reach(200) == pytest.approx(math.sqrt(200))
