"""The hold-out: proportional shares, and the same records for the same key."""

import doctest
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.data import holdout

seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=60, deadline=None)


def labels_of(counts, seed):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


@quick
@given(st.lists(st.integers(0, 500), min_size=1, max_size=10), seeds, st.data())
def test_holdout_shares_are_proportional(counts, seed, data):
    total = sum(counts)
    if total < 2:
        return
    count = data.draw(st.integers(1, total - 1))
    shares = holdout.holdout_counts(counts, count)
    assert shares.sum() == count
    exact = [Fraction(count * c, total) for c in counts]
    assert all(abs(int(s) - e) < 1 for s, e in zip(shares, exact, strict=True))
    up = [e - int(e) for s, e in zip(shares, exact, strict=True) if int(s) > e]
    down = [e - int(e) for s, e in zip(shares, exact, strict=True) if int(s) < e]
    assert not up or not down or min(up) >= max(down)  # rounded up only where more was left over
    labels = labels_of(counts, seed)
    kept, held = holdout.holdout(labels, count, "key", seed)
    assert sorted([*kept, *held]) == list(range(total))
    assert np.bincount(labels[held], minlength=len(counts)).tolist() == shares.tolist()


def test_holdout_is_a_function_of_its_public_key():
    labels = labels_of([100, 50], 0)
    first, same, other = (holdout.holdout(labels, 0.1, key)[1] for key in ("a", "a", "b"))
    assert first.tolist() == same.tolist() != other.tolist()
    assert len(first) == 15
    np.random.seed(1)  # the global generator is not involved
    assert holdout.holdout(labels, 0.1, "a")[1].tolist() == first.tolist()


@pytest.mark.parametrize("size", [0, 1.5, 150, -0.1, True, float("nan"), float("inf")])
def test_holdout_sizes_that_make_no_sense(size):
    with pytest.raises(UserError, match="holdout="):
        holdout.holdout_counts([100, 50], size)


def test_the_examples_in_the_docstrings():
    result = doctest.testmod(holdout)
    assert result.attempted >= 3
    assert result.failed == 0
