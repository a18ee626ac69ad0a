"""Short descriptions of many parties: groups of equal parties, ranges of numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

GROUPED_FROM = 12  # with more parties in a stage, equal ones share a line
MAX_RANGES = 3  # written out; of more, only the number of parties is given

Item = TypeVar("Item")


def group_by(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Group items with equal keys, in the order in which the keys first appear."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def party_ranges(parties: Sequence[int]) -> str:
    """Party numbers as ranges, or how many parties there are if that takes too many ranges.

    >>> party_ranges([4]), party_ranges([0, 1, 2, 7]), party_ranges(range(0, 20, 2))
    ('4', '0-2, 7', '10 parties')
    """
    ranges: list[list[int]] = []
    for party in sorted(set(parties)):
        if ranges and party == ranges[-1][1] + 1:
            ranges[-1][1] = party
        else:
            ranges.append([party, party])
    if len(ranges) > MAX_RANGES:
        return f"{len(set(parties)):,} parties"
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def number_range(numbers: Iterable[int], form: Callable[[int], str] = "{:,}".format) -> str:
    """The smallest and the largest of the numbers, or the only one.

    >>> number_range([7, 7]), number_range([1200, 7])
    ('7', '7 to 1,200')
    """
    values = list(numbers)
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} to {high}"
