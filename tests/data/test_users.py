"""Records that belong to users: who holds what, and that nobody reads what is another's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.data.users import UserRecords, group_by_user, select_users

quick = settings(max_examples=25, deadline=None)


@quick
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=30))
def test_every_user_gets_just_their_own_records(pairs):
    """Against the plain loop over all records."""
    names = sorted({owner for owner, _ in pairs})
    owners = np.array([names.index(owner) for owner, _ in pairs])
    labels = np.array([label for _, label in pairs])
    images = np.arange(len(pairs), dtype=np.uint8).reshape(-1, 1, 1, 1)
    people = group_by_user(owners, labels, images)
    assert people.users == len(names)
    counts = people.counts(4)
    for user in range(people.users):
        mine = [i for i in range(len(pairs)) if owners[i] == user]
        got, classes = people.of(user)
        assert got.reshape(-1).tolist() == mine
        assert classes.tolist() == labels[mine].tolist()
        assert counts[user].tolist() == [classes.tolist().count(c) for c in range(4)]


def test_what_lies_together_is_not_copied(tmp_path):
    np.save(tmp_path / "images.npy", np.arange(24, dtype=np.uint8).reshape(6, 1, 2, 2))
    images = np.load(tmp_path / "images.npy", mmap_mode="c")
    people = UserRecords(images, np.zeros(6, np.int64), np.array([0, 2, 6]))
    mine, _ = people.of(1)
    assert isinstance(mine, np.memmap)
    assert np.shares_memory(mine, images)
    assert mine.tolist() == images[2:].tolist()


def test_there_is_no_user_beyond_the_last():
    people = UserRecords(np.zeros((1, 1, 1, 1), np.uint8), np.zeros(1, np.int64), np.array([0, 1]))
    for user in (-1, 1):
        with pytest.raises(UserError, match=f"there is no user {user}. Allowed: 0 to 0"):
            people.of(user)


@quick
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=20).filter(any),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.2, 3.0]),
)
def test_parties_are_users_with_records_and_nobody_held_out(sizes, seed, holdout):
    counts = np.array([[size, 0] for size in sizes])
    filled = [user for user, size in enumerate(sizes) if size]
    wanted = holdout * sum(sizes) if holdout < 1 else holdout
    if sum(sizes) - max(sizes) < wanted:  # it may take all of them
        return
    parties, held = select_users(counts, 0, seed, holdout, "made")
    assert sorted([*parties, *held]) == filled
    assert sum(sizes[user] for user in held) >= wanted
    assert sum(sizes[user] for user in held[:-1]) < wanted or not holdout
    first, _ = select_users(counts, 1, seed, holdout, "made")
    assert first.tolist() == parties[:1].tolist(), "more parties are others beside the same"
    with pytest.raises(UserError, match=rf"made has {len(parties)} users.*Allowed: 1 to "):
        select_users(counts, len(parties) + 1, seed, holdout, "made")
