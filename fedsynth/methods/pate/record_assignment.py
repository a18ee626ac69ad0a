"""Assignment of a party's records to its teachers, shared by all PATE methods.

`hashed`: each record belongs to the teacher that a hash of its own content selects, so adding or
removing a record changes the training data of one teacher and of no other.

`stratified`: each teacher gets equally many records of each class, as in DataLens's program, give
or take one. A record's teacher is a function of its class, of its rank among the party's records of
that class, and of public counts. Exchanging a record for another one of its class, in its place,
changes the training data of one teacher and of no other. Removing a record moves all later ones of
its class to other teachers, and so does an exchange for another class: this assignment bounds
neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.core.randomness import key as randomness_key
from fedsynth.core.randomness import torch_generator
from fedsynth.data.records import Records
from fedsynth.privacy.mechanisms.votes import Assignment
from fedsynth.privacy.subsets import part_numbers, record_hashes


@dataclass(frozen=True)
class RecordAssignment:
    """The records of each teacher: indices and hashes [teachers, widest], padded behind `sizes`.

    Only the widths of these arrays depend on the records of other teachers."""

    indices: Tensor
    hashes: np.ndarray
    sizes: Tensor
    rule: Assignment = Assignment.HASHED

    @staticmethod
    def of(records: Records, teachers: int, partition: str) -> RecordAssignment:
        """Assign each record to a teacher by its hash, salted with the partition's name."""
        hashes = record_hashes(records, partition)
        owner = part_numbers(records, partition, teachers)
        return RecordAssignment(*_by_teacher(owner, hashes, teachers))

    @staticmethod
    def stratified(
        records: Records, teachers: int, partition: str, class_counts: Mapping[int, int]
    ) -> RecordAssignment:
        """Deal the records of each class to the teachers in turn.

        Each class has as many slots as its public count, and class after class the slots go to the
        teachers in turn. The records of a class take its slots in an order that the partition's
        name selects. Records for which no slot is left have no teacher, and slots may stay empty,
        so that data which do not have the public counts change no other record's teacher."""
        owner = torch.full((len(records.labels),), -1)
        first_slot = 0
        for label, count in sorted(class_counts.items()):
            held = torch.nonzero(records.labels == label).flatten()[:count]
            slots = torch.randperm(count, generator=torch_generator(partition, "slots", label))
            owner[held] = (first_slot + slots[: len(held)]) % teachers
            first_slot += count
        hashes = record_hashes(records, partition)
        return RecordAssignment(*_by_teacher(owner, hashes, teachers), Assignment.STRATIFIED)

    def batch(self, images: int, *key: object) -> Tensor:
        """The record indices of one batch per teacher, [teachers, images].

        Each key gives another order; a teacher with fewer records than `images` repeats them in
        that order. A record's position in the order depends on the record alone, so no teacher's
        batch depends on another teacher's records."""
        ranks = splitmix64(self.hashes ^ np.uint64(randomness_key(*key)))
        ranks[np.arange(ranks.shape[1]) >= self.sizes.numpy()[:, None]] = np.iinfo(np.uint64).max
        order = torch.from_numpy(ranks.argsort(1, kind="stable"))
        first = torch.arange(images) % self.sizes.clamp(min=1)[:, None]
        return self.indices.gather(1, order.gather(1, first))


def _by_teacher(
    owner: Tensor, hashes: np.ndarray, teachers: int
) -> tuple[Tensor, np.ndarray, Tensor]:
    """Indices, hashes and sizes of a `RecordAssignment`; records of owner -1 belong to none."""
    sizes = torch.bincount(owner + 1, minlength=teachers + 1)[1:]
    order = owner.argsort(stable=True)[len(owner) - int(sizes.sum()) :]
    rank = torch.arange(len(order)) - (sizes.cumsum(0) - sizes)[owner[order]]
    indices = torch.zeros(teachers, max(1, int(sizes.max())), dtype=torch.int64)
    indices[owner[order], rank] = order
    padded = hashes[indices.numpy()] if len(hashes) else np.zeros(indices.shape, np.uint64)
    return indices, padded, sizes


def splitmix64(values: np.ndarray) -> np.ndarray:
    """Hash each 64-bit number by the finaliser of the splitmix64 generator."""
    with np.errstate(over="ignore"):
        x = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def or_black_image(records: Records, classes: Sequence[int]) -> Records:
    """The records, or a single black image if there are none.

    Teachers without records are trained like all others, and their votes are discarded."""
    if len(records.labels):
        return records
    black = records.images.new_zeros(1, *records.images.shape[1:])
    return Records(black, torch.tensor(classes[:1]))
