"""Parts of a party's records: every record in one, and none moved by another."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.types import PartyInfo
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import composed, gaussian, repeated
from fedsynth.privacy.party_data import PartyData, open_for_guard
from fedsynth.privacy.subsets import ClassSubset, Subset, part_numbers


def records(n: int, seed: int = 0) -> Records:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return Records(images, torch.arange(n) % 3)


def private(data: Records, path) -> PartyData:
    return PartyData(
        data,
        PartyInfo(0, len(data.labels), dict.fromkeys(range(10), 1)),
        work_dir=path,
        fingerprint="x",
    )


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(1, 7), st.data())
@settings(max_examples=30, deadline=None)
def test_a_record_less_moves_no_other_record(seed, n, parts, data):
    whole = records(n, seed)
    gone = data.draw(st.integers(0, n - 1))
    rest = torch.arange(n) != gone
    fewer = Records(whole.images[rest], whole.labels[rest])
    numbers = part_numbers(whole, "cut", parts)
    assert torch.equal(part_numbers(fewer, "cut", parts), numbers[rest])
    assert ((numbers >= 0) & (numbers < parts)).all()


def test_parts_are_about_equal_differ_by_partition_and_look_at_the_label():
    data = records(3000)
    counts = torch.bincount(part_numbers(data, "cut", 10), minlength=10)
    assert 220 < counts.min() <= counts.max() < 380
    assert not torch.equal(part_numbers(data, "cut", 10), part_numbers(data, "other", 10))
    other = Records(data.images, data.labels + 1)
    assert not torch.equal(part_numbers(data, "cut", 10), part_numbers(other, "cut", 10))


def test_all_parts_together_are_the_records_each_once(tmp_path):
    data = records(50)
    home = private(data, tmp_path)
    found = [open_for_guard(Subset("cut", k, 4).records(home)) for k in range(4)]
    images = torch.cat([part.images for part in found]).flatten(1)
    assert sorted(map(tuple, images.tolist())) == sorted(
        map(tuple, data.images.flatten(1).tolist())
    )
    assert open_for_guard(Subset("cut", 0, 1).records(home)) is data


def test_a_record_pays_for_its_part_and_a_user_for_all():
    visits = [Subset("cut", k % 4, 4) for k in range(9)]
    by_record = composed([part.event(gaussian(3.0), "record") for part in visits])
    by_user = composed([part.event(gaussian(3.0), "user") for part in visits])
    assert epsilon(by_record, 1e-5) == epsilon(repeated(gaussian(3.0), 3), 1e-5)
    assert epsilon(by_user, 1e-5) == epsilon(repeated(gaussian(3.0), 9), 1e-5)


def test_a_record_pays_for_its_class_and_a_user_for_all_classes():
    classes = [ClassSubset(label, 3) for label in range(3)]
    by_record = composed([part.event(gaussian(3.0), "record") for part in classes])
    by_user = composed([part.event(gaussian(3.0), "user") for part in classes])
    assert epsilon(by_record, 1e-5) == epsilon(gaussian(3.0), 1e-5)
    assert epsilon(by_user, 1e-5) == epsilon(repeated(gaussian(3.0), 3), 1e-5)
