"""Sums of clipped contributions of records, over all records or per class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.core.enums import Unit
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import gaussian, poisson
from fedsynth.privacy.clipping import clip_rows
from fedsynth.privacy.mechanisms.base import BoundedValues, Mechanism, SampledMechanism
from fedsynth.privacy.noise import Streams
from fedsynth.privacy.party_data import PartyData, Sealed

Contribution = Callable[[Tensor, Tensor], Tensor]
"""Maps pixels [n, c, h, w] in [0, 1] and labels [n] to one row per record."""

_MAX_ROWS, _MAX_NUMBERS = 2048, 1 << 25  # of the contributions held at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassSums(Mechanism[PartyData, Records]):
    """For each class, the sum of clipped contributions over a Poisson sample of its records.

    Claim: classes are disjoint, so adding or removing one record moves one class's sum, by at most
    `clip` in L2; by parallel composition the cost is that of the largest sampling rate.
    Assumption: row i of `contribution` is a function of record i alone.
    Consequence: a class without records gives noise like any other. The result is one tensor
    [len(sampling_rates), width].

    Attributes:
        contribution: Maps pixels and labels to rows [n, width]; records of several classes may
            come in one call.
        width: The public length of a row.
        clip: The L2 bound of one row.
        sampling_rates: The sampling rate per class, in the order of the result.
    """

    contribution: Contribution
    width: int
    clip: float
    sampling_rates: Mapping[int, float]

    def unit_event(self, unit: Unit) -> DpEvent:
        return poisson(max(self.sampling_rates.values()), gaussian(self.noise_multiplier))

    def select(self, data: PartyData) -> Sealed[Records]:
        return data.records

    def evaluate(self, value: Records, streams: Streams, device: torch.device) -> BoundedValues:
        samples = []
        for label, rate in self.sampling_rates.items():
            of_class = torch.nonzero(value.labels == label).flatten()
            samples.append(of_class[streams("sample", label).poisson_sample(len(of_class), rate)])
        shape = len(self.sampling_rates), self.width
        sums = torch.zeros(shape, dtype=torch.float64, device=device)
        chosen = torch.cat(samples)
        for labels, rows in _clipped_rows(self.contribution, value, chosen, sums, self.clip):
            for position, label in enumerate(self.sampling_rates):
                of_class = torch.nonzero(labels == label).flatten().to(rows.device)
                sums[position] += rows[of_class].sum(0, dtype=torch.float64)
        return BoundedValues([sums], self.clip)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordSum(SampledMechanism):
    """The sum of clipped contributions over a Poisson sample of all records: one tensor [width].

    Claim: adding or removing one record moves the sum by at most `clip` in L2.
    Assumption: row i of `contribution` is a function of record i alone.

    Attributes:
        contribution: Maps pixels and labels to rows [n, width].
        width: The public length of a row.
        clip: The L2 bound of one row.
    """

    contribution: Contribution
    width: int
    clip: float

    def evaluate(self, value: Records, streams: Streams, device: torch.device) -> BoundedValues:
        total = torch.zeros(self.width, dtype=torch.float64, device=device)
        chosen = self.sample(value, streams)
        for _, rows in _clipped_rows(self.contribution, value, chosen, total, self.clip):
            total += rows.sum(0, dtype=torch.float64)
        return BoundedValues([total], self.clip)


def _clipped_rows(
    contribution: Contribution, records: Records, chosen: Tensor, sums: Tensor, clip: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """Labels and clipped rows of the chosen records in chunks, on the device of `sums`."""
    width = sums.shape[-1]
    chunk = max(1, min(_MAX_ROWS, _MAX_NUMBERS // width))
    for indices in chosen.split(chunk) if len(chosen) else ():
        labels = records.labels[indices]
        rows = contribution(records.pixels(indices).to(sums.device), labels).flatten(1)
        if rows.shape != (len(indices), width):
            raise ValueError(f"{len(indices)} records must give as many rows of {width} numbers")
        yield labels, clip_rows(rows, clip)
