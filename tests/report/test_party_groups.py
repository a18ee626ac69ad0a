"""Groups and ranges of parties hold every party once."""

import doctest

from hypothesis import given
from hypothesis import strategies as st

from fedsynth.report import party_groups


def test_examples_hold():
    assert doctest.testmod(party_groups).failed == 0


@given(st.sets(st.integers(0, 30), min_size=1))
def test_party_ranges_name_exactly_these_parties(parties):
    text = party_groups.party_ranges(sorted(parties))
    if text.endswith("parties"):
        assert int(text.split()[0]) == len(parties)
        return
    named = set()
    for piece in text.split(", "):
        first, _, last = piece.partition("-")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == parties


@given(st.lists(st.integers(0, 3)))
def test_groups_hold_every_item_once_and_only_equal_keys(items):
    groups = party_groups.group_by(items, lambda item: item % 2)
    assert sorted(x for group in groups for x in group) == sorted(items)
    assert all(len({x % 2 for x in group}) == 1 for group in groups)
    assert len(groups) == len({x % 2 for x in items})
