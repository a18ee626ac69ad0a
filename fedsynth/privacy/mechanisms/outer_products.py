"""Sums of clipped outer products of rows: linear-layer gradients and second moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.core.enums import Unit
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.mechanisms.base import BoundedValues, Mechanism
from fedsynth.privacy.noise import Streams
from fedsynth.privacy.outer_products import clipped_outer_sum
from fedsynth.privacy.party_data import PartyData, Sealed

TensorPair = tuple[Tensor, Tensor]
GroupedRows = tuple[Tensor, Tensor]
"""One row [n, width] and one group number [n] per record."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _PairMechanism(Mechanism[PartyData, tuple[Records, TensorPair]]):
    """A mechanism on two tensors with one row per record, without sampling."""

    clip: float

    def unit_event(self, unit: Unit) -> DpEvent:
        return gaussian(self.noise_multiplier)


@dataclass(frozen=True, kw_only=True, eq=False)
class OuterProductSum(_PairMechanism):
    """The sum over all records of left_i (outer) right_i: one matrix [a, b], for example the
    gradient of a linear layer.

    Claim: adding or removing one record moves the sum by at most `clip` in L2, to which each
    record's matrix is clipped. The factors are mapped from these very records, one row per record,
    and have the declared widths; others are refused.
    Assumption: row i of both factors is a function of record i alone.

    Attributes:
        factors: Mapped from the party's records: left [n, a] and right [n, b].
        shape: The public shape [a, b] of the result.
        clip: The L2 bound of one record's matrix.
    """

    factors: Sealed[TensorPair]
    shape: Sequence[int]

    def select(self, data: PartyData) -> Sealed[tuple[Records, TensorPair]]:
        return data.records.zip(self.factors)

    def evaluate(
        self, value: tuple[Records, TensorPair], streams: Streams, device: torch.device
    ) -> BoundedValues:
        records, (left, right) = value
        for rows, width in zip((left, right), self.shape, strict=True):
            _check_rows(rows, len(records.labels), width)
        return BoundedValues([clipped_outer_sum(left, right, self.clip)], self.clip)


@dataclass(frozen=True, kw_only=True, eq=False)
class SecondMoments(_PairMechanism):
    """For each group, the sum of row_i (outer) row_i over its records: one tensor
    [groups, width, width].

    Claim: a record's matrix is clipped to `clip` in L2 and enters at most one group, so adding or
    removing one record moves all groups together by at most `clip`. The rows are mapped from these
    very records, one per record, and have the declared width; others are refused.
    Assumption: the row and the group number of record i are functions of record i alone. A record
    with a number outside 0..groups-1 belongs to no group.
    Consequence: the noise is not symmetric. Averaging a matrix with its transpose halves the
    variance off the diagonal, and is post-processing.

    Attributes:
        rows: Mapped from the party's records: rows [n, width] and group numbers [n].
        width: The public length of a row.
        groups: The public number of groups.
        clip: The L2 bound of one record's matrix.
    """

    rows: Sealed[GroupedRows]
    width: int
    groups: int

    def select(self, data: PartyData) -> Sealed[tuple[Records, TensorPair]]:
        return data.records.zip(self.rows)

    def evaluate(
        self, value: tuple[Records, TensorPair], streams: Streams, device: torch.device
    ) -> BoundedValues:
        records, (rows, numbers) = value
        _check_rows(rows, len(records.labels), self.width)
        if numbers.shape != records.labels.shape or numbers.is_floating_point():
            raise ValueError("second moments need exactly one group number per record")
        members = ((numbers == group).nonzero().flatten() for group in range(self.groups))
        sums = [clipped_outer_sum(rows[chosen], rows[chosen], self.clip) for chosen in members]
        return BoundedValues([torch.stack(sums)], self.clip)


def _check_rows(rows: Tensor, records: int, width: int) -> None:
    """Refuse anything but one row of `width` floats per record."""
    if rows.shape != (records, width) or not rows.is_floating_point():
        raise ValueError(f"an outer sum needs exactly one row of {width} numbers per record")
