"""The events that dp-accounting has no words for: spending on the parts of a partition."""

from __future__ import annotations

from collections.abc import Sequence

import attr
from dp_accounting import DpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ParallelDpEvent(DpEvent):
    """Each record lies in one part of a fixed partition of the data; part i pays `events[i]`.

    The part a record belongs to must be a property of that record alone (its class, say), so that
    adding or removing it touches no other part: the cost is then the worst branch, not the sum.
    Equal parallel events, in one tree or one ledger, are taken to cut the data the same way; name
    the parts in the same order every time.
    """

    events: Sequence[DpEvent]


@attr.s(frozen=True, slots=True, auto_attribs=True)
class OnePartDpEvent(DpEvent):
    """`event`, on part number `part` of a fixed partition into `parts` parts called `partition`.

    As for `ParallelDpEvent`, the part of a record is a property of that record alone. Events on
    different parts of one partition cost as much as the worst part, not as the sum; that lets a
    ledger charge part by part what is asked part by part.
    """

    partition: str
    part: int
    parts: int
    event: DpEvent
