"""Disjoint subsets of a party's records, each record's subset a function of that record alone.

Claim: the part of a record is a hash of the record, salted with the partition's name, so that
adding or removing a record changes one part and leaves all others unchanged to the bit. Mechanisms
on different parts compose in parallel under add/remove.
Consequence: parts are only about equal in size, and their sizes are private. (Equal slices of a
shuffled list do not have this property: one record more or less shifts all records behind it.)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from dp_accounting import DpEvent

from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import one_part
from fedsynth.privacy.party_data import PartyData, Sealed

USER = "user"


@dataclass(frozen=True)
class Subset:
    """Part `index` of `parts`, of the partition called `partition`."""

    partition: str
    index: int
    parts: int

    def event(self, inner: DpEvent, unit: str) -> DpEvent:
        """The event of `inner` on this part; with unit "user" that of the whole party, because a
        user's records lie in all parts."""
        if unit == USER or self.parts == 1:
            return inner
        return one_part(self.partition, self.index, self.parts, inner)

    def records(self, private: PartyData) -> Sealed[Records]:
        """The records of this part."""
        if self.parts == 1:
            return private.records
        cut = private.remember(
            f"parts {self.parts} of {self.partition}",
            lambda records: (records, part_numbers(records, self.partition, self.parts)),
        )
        return cut.map(self._chosen)

    def _chosen(self, cut: tuple[Records, torch.Tensor]) -> Records:
        records, numbers = cut
        chosen = torch.nonzero(numbers == self.index).flatten()
        return Records(records.images[chosen], records.labels[chosen])


@dataclass(frozen=True)
class ClassSubset:
    """The records of one class, a part of the partition by class."""

    name: int
    classes: int  # of the data set

    def event(self, inner: DpEvent, unit: str) -> DpEvent:
        """The event of `inner` on this class; with unit "user" that of the whole party, because a
        user may have records of all classes."""
        if unit == USER:
            return inner
        return one_part("classes", self.name, self.classes, inner)

    def records(self, private: PartyData) -> Sealed[Records]:
        """The records of this class."""
        return private.remember(f"class {self.name}", self._chosen)

    def _chosen(self, records: Records) -> Records:
        chosen = torch.nonzero(records.labels == self.name).flatten()
        return Records(records.images[chosen], records.labels[chosen])


def part_numbers(records: Records, partition: str, parts: int) -> torch.Tensor:
    """The part of each record, int64 [n]: a function of the record and the partition alone."""
    numbers = record_hashes(records, partition) % np.uint64(parts)
    return torch.from_numpy(numbers.astype(np.int64))


def record_hashes(records: Records, partition: str) -> np.ndarray:
    """A hash of each record, uint64 [n]: of its content and the partition's name alone."""
    salt = hashlib.sha256(partition.encode()).digest()
    images = records.images.flatten(1).numpy()
    hashes = b"".join(
        hashlib.blake2b(row.tobytes() + label.to_bytes(8, "big"), key=salt).digest()[:8]
        for row, label in zip(images, records.labels.tolist(), strict=True)
    )
    return np.frombuffer(hashes, dtype=">u8").astype(np.uint64)
