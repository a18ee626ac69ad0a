"""Sealed values and the cache of a party's records."""

from __future__ import annotations

import pickle

import pytest
import torch
from guarded import private, records

from fedsynth.core.types import PartyInfo
from fedsynth.data.records import Records
from fedsynth.privacy.party_data import PartyData, Sealed, open_for_guard


def test_sealed_values_can_be_computed_on_but_not_shown_or_sent():
    sealed = Sealed(41).map(lambda x: x + 1)
    assert "42" not in repr(sealed)
    with pytest.raises(TypeError, match="does not leave"):
        pickle.dumps(sealed)
    assert open_for_guard(sealed) == 42


def test_what_a_party_remembers_is_computed_once_a_key_and_stays_sealed(tmp_path):
    home, computed = private(records(3), tmp_path), []

    def count(records: Records) -> int:
        computed.append(1)
        return len(records.labels)

    assert isinstance(home.remember("a", count), Sealed)
    again = PartyData(
        home.records.map(lambda r: r)._value, home.info, work_dir=tmp_path, fingerprint="other"
    )
    again.remember("a", count)
    assert len(computed) == 1
    for key in "bcde":
        again.remember(key, count)
    again.remember("a", count)
    assert len(computed) == 6
    assert "Sealed" in repr(again.remember("a", count))


@pytest.mark.parametrize("label", [4, 999, -1])
def test_records_of_undeclared_classes_are_ignored_one_by_one(tmp_path, label):
    data = records(8)
    more = Records(
        torch.cat([data.images[:3], data.images[:1], data.images[3:]]),
        torch.cat([data.labels[:3], torch.tensor([label]), data.labels[3:]]),
    )
    info = PartyInfo(0, 8, dict.fromkeys(range(4), 2))
    home = PartyData(more, info, work_dir=tmp_path, fingerprint="f")
    kept = open_for_guard(home.records)
    assert torch.equal(kept.images, data.images)
    assert torch.equal(kept.labels, data.labels)
    again = PartyData(more, info, work_dir=tmp_path, fingerprint="f")
    assert open_for_guard(again.records) is kept, "what is remembered with them is kept"
    unchanged = PartyData(data, info, work_dir=tmp_path, fingerprint="f")
    assert open_for_guard(unchanged.records) is data


def test_the_classes_of_a_stage_can_be_given_in_place_of_the_declared_ones(tmp_path):
    info = PartyInfo(0, 8, {0: 1})
    home = PartyData(records(8), info, work_dir=tmp_path, fingerprint="f", classes=(3, 1))
    assert open_for_guard(home.records).labels.tolist() == [1, 3, 1, 3]


def test_values_of_different_records_make_no_pair(tmp_path):
    home, other = private(records(3), tmp_path), private(records(3, 1), tmp_path)
    both = home.records.zip(home.records.map(lambda some: some.labels))
    assert open_for_guard(both.map(len)) == 2
    with pytest.raises(ValueError, match="not computed from the same records"):
        home.records.zip(other.records.map(lambda some: some.labels))
