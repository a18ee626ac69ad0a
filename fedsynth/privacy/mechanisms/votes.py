"""Noised votes of teachers: each record belongs to one teacher, each teacher casts one ballot per
image."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import torch
from dp_accounting import DpEvent

from fedsynth.core.enums import Unit
from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting.events import gaussian, gaussian_of_exchange
from fedsynth.privacy.count_sketch import CountSketch
from fedsynth.privacy.mechanisms.base import BoundedValues, Mechanism
from fedsynth.privacy.noise import Streams
from fedsynth.privacy.party_data import Sealed


class Assignment(StrEnum):
    """The rule that assigns records to teachers."""

    HASHED = "hashed"  # by the record alone
    STRATIFIED = "stratified"  # by the record's class and its rank among the party's of that class


@dataclass(frozen=True)
class VoteBounds:
    """The bounds of a ballot: `width` whole numbers from `low` to `high`, at most `entries` of
    them not zero."""

    width: int
    entries: int
    low: int = -1
    high: int = 1

    @property
    def signs(self) -> bool:
        """True if ballots hold signs only."""
        return (self.low, self.high) == (-1, 1)

    def sensitivity(self, images: int, sketch: CountSketch | None = None) -> float:
        """The L2 bound by which one teacher's ballots for `images` images move their sum.

        A teacher that loses its last record abstains, which moves the sum by no more than the
        opposite of every vote: 2 sqrt(entries) for signs, (high - low) sqrt(entries) for more
        levels that span zero. The sketch of a sum moves by at most twice the largest table norm."""
        if not (self.low <= 0 <= self.high and 0 < self.entries <= self.width):
            raise ValueError(f"{self} allows no ballot that could be bounded")
        if sketch is None:
            # Sparse ballots on disjoint coordinates differ in twice as many entries, each by half.
            apart = max(abs(self.low), self.high) * math.sqrt(2 * self.entries)
            most = max((self.high - self.low) * math.sqrt(self.entries), apart)
            if self.entries == self.width:
                most = (self.high - self.low) * math.sqrt(self.width)
        else:
            most = 2 * max(abs(self.low), self.high) * sketch.reach(self.entries)
        return most * math.sqrt(images)

    def valid(self, ballots: torch.Tensor) -> torch.Tensor:
        """True if each of the ballots [..., width] is within the bounds, [..., 1]."""
        few = (ballots != 0).sum(-1, keepdim=True) <= self.entries
        lowest, highest = torch.aminmax(ballots, dim=-1, keepdim=True)
        return few & (lowest >= self.low) & (highest <= self.high)


@dataclass(frozen=True)
class VoteCounts:
    """Counted ballots: one sum per image. Made by `count`, or restored from a party's own disk."""

    bounds: VoteBounds
    sums: torch.Tensor  # int32 [images, width]
    assignment: Assignment = Assignment.HASHED  # of records to the teachers that voted

    @staticmethod
    def count(
        bounds: VoteBounds,
        images: int,
        stacks: Iterable[torch.Tensor],
        assignment: Assignment = Assignment.HASHED,
    ) -> VoteCounts:
        """Add up stacks of ballots [teachers, images, width] of small integers. Ballots outside the
        bounds are not counted."""
        sums = torch.zeros(images, bounds.width, dtype=torch.int32)
        for stack in stacks:
            if stack.shape[1:] != sums.shape or stack.is_floating_point():
                raise ValueError(f"ballots of the form {tuple(stack.shape)} are not {sums.shape}")
            sums = sums.to(stack.device) + (stack * bounds.valid(stack)).sum(0, dtype=torch.int32)
        return VoteCounts(bounds, sums.cpu(), assignment)

    @staticmethod
    def total(tallies: Iterable[VoteCounts]) -> VoteCounts:
        """The sum of one or more counts of different teachers."""
        first, *rest = tallies
        rules = first.bounds, first.assignment
        if any((other.bounds, other.assignment) != rules for other in rest):
            raise ValueError("ballots under different bounds or assignments cannot be added up")
        sums = torch.stack([first.sums, *(t.sums for t in rest)]).sum(0).int()
        return VoteCounts(first.bounds, sums, first.assignment)


@dataclass(frozen=True, kw_only=True, eq=False)
class _VoteMechanism(Mechanism[Sealed[VoteCounts], VoteCounts]):
    """A mechanism on the counted ballots of one round, without sampling.

    Unit: one record, added, removed or exchanged for another one.
    Assumption: every record belongs to at most one teacher, and a teacher's ballots are a function
    of its own records and of public things.
    Consequence, by the assignment of records. `hashed`: the teacher depends on the record alone,
    so a record more or less changes the ballots of one teacher, and an exchange those of up to two.
    `stratified`: the teacher depends on the record's class and its rank among those of its class.
    If a record is exchanged for another one of its class in its place, all ranks stay, and one
    teacher's ballots change. A removal, or an exchange for another class, may change those of
    every teacher: the event bounds neither, and no budget under add/remove pays for it.

    Attributes:
        bounds: The public bounds of a ballot.
        images: The public number of images of a round. The sensitivity is computed from both, and
            counts of another form or under other bounds are refused.
        assignment: The rule that assigned the records. Counts by another one are refused.
    """

    bounds: VoteBounds
    images: int
    assignment: Assignment = Assignment.HASHED

    def unit_event(self, unit: Unit) -> DpEvent:
        if self.assignment == Assignment.HASHED:
            return gaussian(self.noise_multiplier)
        if unit != Unit.RECORD:
            raise UserError(
                f"unit={unit}: records that are assigned to teachers by class and rank are bounded "
                "one by one, and with no other unit."
            )
        return gaussian_of_exchange(self.noise_multiplier)

    def select(self, data: Sealed[VoteCounts]) -> Sealed[VoteCounts]:
        return data

    def checked(self, value: VoteCounts) -> torch.Tensor:
        """The sums as float64, if they have the declared form."""
        shape = self.images, self.bounds.width
        if value.assignment != self.assignment:
            raise ValueError(f"the records were not assigned to teachers as {self.assignment}")
        if value.bounds != self.bounds or value.sums.shape != shape:
            raise ValueError(f"the counted ballots are not of the form {shape} under the bounds")
        if value.sums.dtype != torch.int32:
            raise ValueError("counted ballots are whole numbers")
        return value.sums.double()


@dataclass(frozen=True, kw_only=True, eq=False)
class VoteSums(_VoteMechanism):
    """The vote sums of all images of one round, or their count sketch: one tensor.

    Claim: one teacher's ballots move the sums of all images together by at most
    `VoteBounds.sensitivity` in L2; `VoteCounts.count` leaves out ballots that break the bounds.
    Consequence: one round is one Gaussian mechanism, the composition of one per image. It bounds a
    user if the party is one teacher: sums that are no single ballot are then left out.

    Attributes:
        sketch: Maps the sums to short tables, to which the noise is added.
        teachers: The public number of teachers of this party; None: any.
    """

    units = (Unit.RECORD, Unit.USER)

    sketch: CountSketch | None = None
    teachers: int | None = None

    def unit_event(self, unit: Unit) -> DpEvent:
        if unit == Unit.USER and self.teachers != 1:
            raise UserError(
                "unit=user: votes bound what one teacher changes, and a user's records may lie "
                f"with each of {self.teachers or 'many'} teachers: let the party be one teacher."
            )
        return super().unit_event(unit)

    def evaluate(self, value: VoteCounts, streams: Streams, device: torch.device) -> BoundedValues:
        sums = self.checked(value)
        sensitivity = self.bounds.sensitivity(self.images, self.sketch)
        if self.teachers == 1:
            sums = sums * self.bounds.valid(value.sums)
        if self.sketch is not None:
            sums = self.sketch.table(sums)
        return BoundedValues([sums], sensitivity)


@dataclass(frozen=True, kw_only=True, eq=False)
class VoteMaxima(_VoteMechanism):
    """For every image, the largest sum in each of `groups` equal groups of its votes: one tensor
    [images, groups].

    Claim: one teacher's ballots move each sum, and so each maximum, by at most high - low, and all
    maxima together by at most (high - low) sqrt(images groups) in L2.
    Consequence: all maxima of a round are one Gaussian mechanism.
    """

    groups: int

    def evaluate(self, value: VoteCounts, streams: Streams, device: torch.device) -> BoundedValues:
        maxima = self.checked(value).unflatten(1, (self.groups, -1)).amax(2)
        levels = self.bounds.high - self.bounds.low
        sensitivity = levels * math.sqrt(self.images * self.groups)
        return BoundedValues([maxima], sensitivity)
