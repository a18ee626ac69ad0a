"""Charges of one answer: once per use, in the ledger, before any stream is opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from guarded import ANY, FREE, KEY, PARTY_KEY

from fedsynth.core.plan import SERVER_VIEW
from fedsynth.privacy.accounting.events import disclosed, gaussian, repeated, to_json
from fedsynth.privacy.charging import Charger
from fedsynth.privacy.ledger import Ledger, read_entries

EVENT = gaussian(2.0)


def charger(path: Path, *, digest: str = "d", data: str = "f") -> Charger:
    """The charger of one answer; its ledger is in `path`."""
    return Charger(
        plan=ANY,
        stage=0,
        ledger=Ledger(
            path / "ledger.jsonl", job="j", party=0, budget=FREE, noise_key=KEY, party_key=PARTY_KEY
        ),
        key=KEY,
        request_digest=digest,
        data_fingerprint=data,
    )


def test_a_reservation_is_one_entry_and_each_number_is_used_once(tmp_path):
    charges = charger(tmp_path)
    with charges.reserve(EVENT, 3):
        for call in (2, 0):
            charges.charge_call(EVENT, call, SERVER_VIEW)
        for call in (2, 3, -1):
            with pytest.raises(PermissionError, match=f"call {call} was not reserved or is used"):
                charges.charge_call(EVENT, call, SERVER_VIEW)
        with pytest.raises(PermissionError, match="another event than was reserved"):
            charges.charge_call(gaussian(1.0), 1, SERVER_VIEW)
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert entry.event == to_json(repeated(EVENT, 3))
    assert charges.entries == [entry.hash]


def test_a_reservation_ends_with_its_block_even_after_an_error(tmp_path):
    charges = charger(tmp_path)
    with pytest.raises(ZeroDivisionError), charges.reserve(EVENT, 2):
        raise ZeroDivisionError
    charges.charge_call(EVENT, 0, SERVER_VIEW)
    assert len(read_entries(tmp_path / "ledger.jsonl")) == 2


def test_streams_differ_by_call_purpose_data_and_request_and_repeat_otherwise(tmp_path):
    def words(call: int = 0, purpose: str = "noise", **answer: str) -> bytes:
        streams = charger(tmp_path, **answer).charge_call(EVENT, call, SERVER_VIEW)
        return streams(purpose).words(4).tobytes()

    first = words()
    others = [words(1), words(purpose="sample"), words(data="g"), words(digest="e")]
    assert words() == first
    assert len({first, *others}) == 5


def test_a_label_is_charged_once_per_answer_unless_it_costs_no_noise(tmp_path):
    charges = charger(tmp_path)
    charges.charge(EVENT, "sum")
    with pytest.raises(PermissionError, match="sum is used already"):
        charges.charge(EVENT, "sum")
    charges.charge(disclosed(), "raw")
    charges.charge(disclosed(), "raw")
    assert len(charges.entries) == len(read_entries(tmp_path / "ledger.jsonl")) == 2
