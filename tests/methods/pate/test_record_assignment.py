"""The assignment of records to teachers, and the batches it gives them."""

from __future__ import annotations

import torch
from tiny_teachers import some_records

from fedsynth.data.records import Records
from fedsynth.methods.pate.record_assignment import RecordAssignment, or_black_image


def test_every_record_has_one_teacher_and_teachers_have_similar_numbers():
    assignment = RecordAssignment.of(some_records(3000), 100, "some partition")
    pairs = zip(assignment.indices, assignment.sizes, strict=True)
    used = torch.cat([row[:n] for row, n in pairs])
    assert sorted(used.tolist()) == list(range(3000))
    assert 10 < int(assignment.sizes.min()) < 30 < int(assignment.sizes.max()) < 60


def test_a_batch_holds_own_records_without_repetition_if_there_are_enough():
    assignment = RecordAssignment.of(some_records(), 12, "some partition")
    batches = [assignment.batch(4, "round", number) for number in range(3)]
    for teacher, size in enumerate(assignment.sizes.tolist()):
        own = set(assignment.indices[teacher, :size].tolist())
        for batch in batches:
            chosen = batch[teacher].tolist()
            assert size == 0 or set(chosen) <= own
            assert size == 0 or len(set(chosen)) == min(4, size)
    assert not torch.equal(batches[0], batches[1])


def test_no_records_are_replaced_by_one_black_image():
    records = some_records(5)
    assert or_black_image(records, (2, 0)) is records
    none = Records(records.images[:0], records.labels[:0])
    black = or_black_image(none, (2, 0))
    assert black.labels.tolist() == [2]
    assert not black.images.any()
    assert RecordAssignment.of(none, 4, "some partition").sizes.tolist() == [0, 0, 0, 0]
