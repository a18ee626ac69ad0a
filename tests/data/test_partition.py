"""Partitioners: against naive versions, and against what they promise."""

import dataclasses
import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.data import partition
from fedsynth.experiment.client_selection import ClientSelectionConfig

class_counts = st.lists(st.integers(0, 40), min_size=1, max_size=12)
seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=60, deadline=None)


def labels_of(counts, seed):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


NOT_DRAWN = ("users", "parties", "flower")  # by the data, or with a test of its own


@st.composite
def cuts(draw):
    """A partitioner with a valid call: (name, class counts, parties, options)."""
    counts = draw(class_counts)
    name = draw(st.sampled_from([name for name in partition.names() if name not in NOT_DRAWN]))
    parties, options = draw(st.integers(1, 6)), {}
    if name == "classes":
        divisors = [n for n in range(1, len(counts) + 1) if len(counts) % n == 0]
        parties = draw(st.sampled_from(divisors))
        options["order"] = draw(st.permutations(range(len(counts))))
    if name == "dirichlet":
        options["alpha"] = draw(st.floats(0.01, 100))
    if name == "shards":
        options["shards_per_party"] = draw(st.integers(1, 4))
    return name, counts, 1 if name == "single" else parties, options


def test_every_partitioner_is_drawn_here_with_its_options():
    drawn = {"classes": {"order"}, "dirichlet": {"alpha"}, "shards": {"shards_per_party"}}
    drawn["flower"] = {"name"}  # tests/data/test_flower_partitioners.py
    # No draw, but a fact of the data: tests/test_population.py
    drawn["users"] = {field.name for field in dataclasses.fields(ClientSelectionConfig)}
    for name in partition.names():
        assert set(partition.find(name).options) == drawn.get(name, set())
        assert partition.find(name).about


@quick
@given(cuts(), seeds)
def test_all_records_are_dealt_once_and_as_counted(cut, seed):
    name, counts, parties, options = cut
    shares = partition.find(name).cut(counts, parties, np.random.default_rng(seed), **options)
    if (shares.sum(1) == 0).any():
        with pytest.raises(UserError, match="without records"):
            partition.counts(name, counts, parties, np.random.default_rng(seed), **options)
        return
    assert shares.shape == (parties, len(counts))
    assert shares.dtype == np.int64
    assert (shares >= 0).all()
    assert shares.sum(0).tolist() == counts
    labels = labels_of(counts, seed)
    parts = partition.assign(labels, shares, np.random.default_rng(seed))
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    for part, share in zip(parts, shares, strict=True):
        assert np.bincount(labels[part], minlength=len(counts)).tolist() == share.tolist()
        assert (np.diff(part) > 0).all()
    again = partition.counts(name, counts, parties, np.random.default_rng(seed), **options)
    assert (again == shares).all()


@quick
@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), seeds, st.data())
def test_assign_takes_no_more_than_asked(counts, seed, data):
    shares = np.array([[data.draw(st.integers(0, c // 3)) for c in counts] for _ in range(3)])
    labels = labels_of(counts, seed)
    parts = partition.assign(labels, shares, np.random.default_rng(seed))
    everything = np.concatenate(parts)
    assert len(set(everything.tolist())) == len(everything) == shares.sum()
    for part, share in zip(parts, shares, strict=True):
        assert np.bincount(labels[part], minlength=len(counts)).tolist() == share.tolist()


def test_assign_draws_which_records():
    labels, shares = np.zeros(200, int), np.array([[100], [100]])
    first, second = (
        partition.assign(labels, shares, np.random.default_rng(s))[0].tolist() for s in (1, 2)
    )
    assert first != second
    assert first != list(range(100))  # not simply the first ones


def test_assign_refuses_counts_of_other_data():
    with pytest.raises(UserError, match="asks for 3 records of class 1, but there are 2"):
        partition.assign(np.array([0, 1, 1]), np.array([[1, 3]]), np.random.default_rng(0))


def test_classes_against_a_loop():
    counts, order = list(range(100, 1100, 100)), [5, 6, 1, 2, 0, 8, 9, 3, 4, 7]
    shares = partition.counts("classes", counts, 5, np.random.default_rng(0))
    for party in range(5):
        for c in range(10):
            mine = order.index(c) // 2 == party
            assert shares[party, c] == (counts[c] if mine else 0)


@quick
@given(class_counts, st.integers(1, 5), st.integers(1, 4), seeds)
def test_shards_against_sorting_labels(counts, parties, each, seed):
    shares = partition.find("shards").cut(
        counts, parties, np.random.default_rng(seed), shards_per_party=each
    )
    pieces = np.array_split(np.repeat(np.arange(len(counts)), counts), parties * each)
    dealt = np.random.default_rng(seed).permutation(parties * each).reshape(parties, each)
    for party in range(parties):
        held = np.concatenate([pieces[k] for k in dealt[party]])
        assert np.bincount(held, minlength=len(counts)).tolist() == shares[party].tolist()


@quick
@given(class_counts, st.integers(1, 6), st.floats(0.05, 10), seeds)
def test_dirichlet_is_within_one_record_of_its_draw(counts, parties, alpha, seed):
    shares = partition.find("dirichlet").cut(
        counts, parties, np.random.default_rng(seed), alpha=alpha
    )
    rng = np.random.default_rng(seed)
    for c, count in enumerate(counts):
        proportions = rng.dirichlet([alpha] * parties)
        assert np.abs(shares[:, c] - proportions * count).max() <= 1 + 1e-9
        assert shares[:, c].sum() == count


def test_a_small_alpha_makes_parties_differ_more():
    def spread(alpha):
        rng = np.random.default_rng(3)
        cut = partition.find("dirichlet").cut
        return np.mean([cut([1000] * 10, 5, rng, alpha=alpha).std(0).mean() for _ in range(20)])

    assert spread(0.1) > 2 * spread(1) > 4 * spread(10)


def test_iid_counts_have_the_law_of_a_shuffle():
    counts, parties, draws = [30, 10, 5], 3, 3000
    rng = np.random.default_rng(0)
    ours = np.array([partition.counts("iid", counts, parties, rng) for _ in range(draws)])
    labels = np.repeat(np.arange(3), counts)
    naive = np.array(
        [
            [np.bincount(p, minlength=3) for p in np.array_split(rng.permutation(labels), parties)]
            for _ in range(draws)
        ]
    )
    assert (ours.sum(2) == 15).all()
    # standard error of a mean is below sqrt(3.5/3000) = 0.034 and of a variance about 0.1
    assert np.abs(ours.mean(0) - naive.mean(0)).max() < 0.25
    assert np.abs(ours.var(0) - naive.var(0)).max() < 0.6
    cross = [np.cov(x[:, 0, 0], x[:, 1, 0])[0, 1] for x in (ours, naive)]
    assert abs(cross[0] - cross[1]) < 0.4


@pytest.mark.parametrize(
    ("name", "parties", "options", "message"),
    [
        ("clases", 5, {}, "Did you mean 'classes'"),
        ("dirichlet", 5, {"alfa": 1}, "Did you mean 'alpha'"),
        ("iid", 5, {"alpha": 1}, "has no options"),
        ("classes", 20, {}, "cannot be cut into 20 equal blocks.*Allowed: 1, 2, 5, 10"),
        ("classes", 3, {}, "Allowed: 1, 2, 5, 10"),
        ("classes", 5, {"order": [0, 1, 2]}, "each of the 10 classes 0..9 once"),
        ("classes", 5, {"order": [0] * 10}, "each of the 10 classes 0..9 once"),
        ("classes", 5, {"order": ["a", *range(9)]}, "each of the 10 classes 0..9 once"),
        ("classes", 5, {"order": 7}, "each of the 10 classes 0..9 once"),
        ("dirichlet", 5, {"alpha": 0}, "alpha=0 .*above 0"),
        ("dirichlet", 5, {"alpha": "much"}, "alpha='much'"),
        ("dirichlet", 90, {"alpha": 0.001}, r"leaves party \d+ without.*alpha=0.001.*Raise alpha"),
        ("shards", 5, {"shards_per_party": 0}, "shards_per_party=0 must be a whole number"),
        ("iid", 101, {}, "leaves party 100 without records"),
        ("iid", 0, {}, "parties=0 must be a whole number"),
        ("iid", 2.0, {}, "parties=2.0 must be a whole number"),
        ("single", 2, {}, "parties=1, not 2"),
    ],
)
def test_what_cannot_be_cut_is_explained(name, parties, options, message):
    with pytest.raises(UserError, match=message):
        partition.counts(name, [10] * 10, parties, np.random.default_rng(0), **options)


def test_the_examples_in_the_docstrings():
    result = doctest.testmod(partition)
    assert result.attempted > 5
    assert result.failed == 0
