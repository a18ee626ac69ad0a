"""Sealed values and the cache of a party's records."""

from __future__ import annotations

import pickle

import pytest
from guarded import private, records

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
