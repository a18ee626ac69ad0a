"""The assignment of records to teachers, how far one record reaches, and the batches."""

from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_teachers import some_records

from fedsynth.core.randomness import torch_generator
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


# Equally many records of each class


def numbered(labels: list[int]) -> Records:
    """Records of these classes, each with an image of its own."""
    images = torch.arange(len(labels), dtype=torch.uint8).view(-1, 1, 1, 1)
    return Records(images, torch.tensor(labels, dtype=torch.int64))


def shards(records: Records, assignment: RecordAssignment) -> list[Counter[tuple[int, int]]]:
    """Images and labels of each teacher."""
    return [
        Counter((int(records.images[i]), int(records.labels[i])) for i in row[:size].tolist())
        for row, size in zip(assignment.indices, assignment.sizes.tolist(), strict=True)
    ]


def stratified(records: Records, teachers: int, counts: dict[int, int]) -> list[Counter]:
    return shards(records, RecordAssignment.stratified(records, teachers, "cut", counts))


def changed(one: list[Counter], other: list[Counter]) -> int:
    """The number of teachers that have other records."""
    return sum(a != b for a, b in zip(one, other, strict=True))


labels_of = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@given(labels_of, st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_teachers_have_equally_many_records_of_each_class_and_each_record_has_one(labels, teachers):
    records, counts = numbered(labels), Counter(labels)
    found = stratified(records, teachers, counts)
    assert sum(found, Counter()) == Counter(enumerate(labels))
    for label, count in counts.items():
        own = [sum(n for (_, y), n in shard.items() if y == label) for shard in found]
        assert set(own) <= {count // teachers, -(-count // teachers)}
    sizes = [shard.total() for shard in found]
    assert max(sizes) - min(sizes) <= 1


@given(labels_of, st.integers(1, 9), st.lists(st.integers(0, 30), min_size=4, max_size=4))
@settings(max_examples=60, deadline=None)
def test_it_is_a_naive_deal_into_slots_that_the_public_counts_make(labels, teachers, declared):
    """Also where the data do not have the declared counts."""
    records, counts = numbered(labels), {c: n for c, n in enumerate(declared) if n}
    naive: list[list[tuple[int, int]]] = [[] for _ in range(teachers)]
    slots = {}
    place = 0
    for label in sorted(counts):
        order = torch.randperm(counts[label], generator=torch_generator("cut", "slots", label))
        slots[label] = [place + int(i) for i in order]
        place += counts[label]
    for number, label in enumerate(labels):
        if slots.get(label):
            naive[slots[label].pop(0) % teachers].append((number, label))
    assert stratified(records, teachers, counts) == [Counter(shard) for shard in naive]


@given(labels_of, st.integers(1, 9), st.data())
@settings(max_examples=100, deadline=None)
def test_an_exchange_within_a_class_reaches_one_teacher_and_never_more(labels, teachers, data):
    """Whatever the counts say: the exchange leaves all ranks as they are."""
    records, place = numbered(labels), data.draw(st.integers(0, len(labels) - 1))
    other = Records(records.images.clone(), records.labels)
    other.images[place] = 255
    moved = changed(*(stratified(r, teachers, Counter(labels)) for r in (records, other)))
    assert moved == 1
    few = {label: max(1, count // 2) for label, count in Counter(labels).items()}
    assert changed(*(stratified(r, teachers, few) for r in (records, other))) <= 1


def test_a_removal_or_another_class_reaches_all_teachers_and_is_therefore_refused():
    """The attack that no noise for one teacher stands: public counts do not help."""
    records, teachers = numbered([0] * 40 + [1] * 40), 20
    counts = {0: 40, 1: 40}
    before = stratified(records, teachers, counts)
    rest = Records(records.images[1:], records.labels[1:])
    assert changed(before, stratified(rest, teachers, counts)) > 0.8 * teachers
    labels = records.labels.clone()
    labels[0] = 1
    assert changed(before, stratified(Records(records.images, labels), teachers, counts)) > 15


@given(labels_of, st.integers(2, 9), st.data())
@settings(max_examples=60, deadline=None)
def test_by_hash_a_removal_reaches_one_teacher_and_any_exchange_at_most_two(labels, teachers, data):
    records, place = numbered(labels), data.draw(st.integers(0, len(labels) - 1))
    kept = [i for i in range(len(labels)) if i != place]
    rest = Records(records.images[kept], records.labels[kept])
    other = Records(records.images.clone(), records.labels.clone())
    other.images[place], other.labels[place] = 255, data.draw(st.integers(0, 3))

    def hashed(some: Records) -> list[Counter]:
        return shards(some, RecordAssignment.of(some, teachers, "cut"))

    assert changed(hashed(records), hashed(rest)) == 1
    assert 1 <= changed(hashed(records), hashed(other)) <= 2


def test_by_hash_some_exchange_reaches_two_teachers():
    """Why an exchange is charged twice there, and once where records are dealt by class."""
    records = numbered([0] * 10)
    reached = set()
    for value in range(100, 120):
        other = Records(records.images.clone(), records.labels)
        other.images[3] = value
        both = (shards(r, RecordAssignment.of(r, 5, "cut")) for r in (records, other))
        reached.add(changed(*both))
    assert reached == {1, 2}


def test_no_records_leave_all_slots_empty():
    none = numbered([])
    assert RecordAssignment.stratified(none, 3, "cut", {0: 5}).sizes.tolist() == [0, 0, 0]
