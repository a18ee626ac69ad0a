"""Many parties in few lines: what is the same for several of them is said once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

CROWD = 12  # parties of a stage; of more, those with equal lines share one
RANGES = 3  # that are written out

Item = TypeVar("Item")


def alike(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """The items in groups of equal keys, in the order in which the keys first appear."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def who(parties: Sequence[int]) -> str:
    """Numbers of parties in short: ranges where there are few, else how many there are.

    >>> who([4]), who([0, 1, 2, 7]), who(range(0, 20, 2))
    ('4', '0-2, 7', '10 parties')
    """
    ranges: list[list[int]] = []
    for party in sorted(set(parties)):
        if ranges and party == ranges[-1][1] + 1:
            ranges[-1][1] = party
        else:
            ranges.append([party, party])
    if len(ranges) > RANGES:
        return f"{len(set(parties)):,} parties"
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def span(numbers: Iterable[int], show: Callable[[int], str] = "{:,}".format) -> str:
    """A number, or from the smallest to the largest of several.

    >>> span([7, 7]), span([1200, 7])
    ('7', '7 to 1,200')
    """
    known = list(numbers)
    low, high = show(min(known)), show(max(known))
    return low if low == high else f"{low} to {high}"
