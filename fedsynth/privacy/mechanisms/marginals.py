"""Counts over the cells of tables: marginals of columns, and how far pairs are from independence.

Everything before the noise is a whole number and computed in integers, so that no rounding has to
be covered by a sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.core.enums import Unit
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.mechanisms.base import BoundedValues, Mechanism
from fedsynth.privacy.noise import Streams
from fedsynth.privacy.party_data import PartyData, Sealed

Codes = Callable[[Tensor, Tensor], Tensor]
"""Maps pixels [n, c, h, w] in [0, 1] and labels [n] to one row of whole numbers per record."""

_CHUNK = 1 << 16  # records whose codes are held at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginalCounts(Mechanism[PartyData, Records]):
    """The number of records in each cell of several tables: one tensor [cells] per table.

    Claim: a record lies in one cell of each table, so adding or removing it moves all counts
    together by sqrt(number of tables) in L2. Codes outside of their column are clamped into it.
    Assumption: row i of `codes` is a function of record i alone.

    Attributes:
        codes: Maps pixels and labels to codes [n, columns], from 0 to size - 1 in each column.
        sizes: The public number of codes of each column.
        tables: The columns of each table. Cells are in the order of the codes of these columns, of
            which the last one changes fastest.
    """

    codes: Codes
    sizes: Sequence[int]
    tables: Sequence[tuple[int, ...]]

    def unit_event(self, unit: Unit) -> DpEvent:
        return gaussian(self.noise_multiplier)

    def select(self, data: PartyData) -> Sealed[Records]:
        return data.records

    def evaluate(self, value: Records, streams: Streams, device: torch.device) -> BoundedValues:
        return BoundedValues(self._counts(value, device), math.sqrt(len(self.tables)))

    def _counts(self, records: Records, device: torch.device) -> list[Tensor]:
        shapes = [[self.sizes[column] for column in table] for table in self.tables]
        counts = [
            torch.zeros(math.prod(shape), dtype=torch.int64, device=device) for shape in shapes
        ]
        for indices in torch.arange(len(records.labels)).split(_CHUNK):
            if not len(indices):
                continue
            codes = self._checked_codes(records, indices, device)
            ones = torch.ones(len(indices), dtype=torch.int64, device=device)
            for table, count in zip(self.tables, counts, strict=True):
                cells = torch.zeros_like(ones)
                for column in table:
                    cells = cells * self.sizes[column] + codes[:, column]
                count.index_add_(0, cells, ones)
        return counts

    def _checked_codes(self, records: Records, indices: Tensor, device: torch.device) -> Tensor:
        codes = self.codes(records.pixels(indices).to(device), records.labels[indices].to(device))
        if codes.shape != (len(indices), len(self.sizes)) or codes.is_floating_point():
            raise ValueError(f"{len(indices)} records must give as many rows of whole numbers")
        columns = [codes[:, i].clamp(0, size - 1) for i, size in enumerate(self.sizes)]
        return torch.stack(columns, dim=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairDistances(MarginalCounts):
    """For each table, the L1 distance of its counts from public expected counts: one tensor
    [tables].

    Claim: adding or removing a record moves one count of each table by one, hence each distance by
    at most one and all together by at most sqrt(number of tables) in L2.
    Assumption: as for `MarginalCounts`.
    Consequence: the noised distances together are one Gaussian mechanism. A choice of the largest
    ones is post-processing and costs nothing, however many are chosen.

    Attributes:
        expected: The expected number of records in each cell [cells] of each table; int64.
    """

    expected: Sequence[Tensor]

    def evaluate(self, value: Records, streams: Streams, device: torch.device) -> BoundedValues:
        counts = self._counts(value, device)
        distances = []
        for count, expected in zip(counts, self.expected, strict=True):
            if expected.shape != count.shape or expected.is_floating_point():
                raise ValueError(f"a table of {len(count)} cells needs as many expected counts")
            distances.append((count - expected.to(device)).abs().sum())
        return BoundedValues([torch.stack(distances)], math.sqrt(len(self.tables)))
