"""The signing key of a party: kept, reproducible from a seed, and checked by its public half."""

from __future__ import annotations

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.privacy.ledger_head import EMPTY, HEAD, HeadFile
from fedsynth.privacy.party_key import KEY_FILE, PartyKey, verify


def test_a_key_is_made_once_and_is_its_owners_alone(tmp_path):
    key = PartyKey.of_owner(tmp_path / "keys", "party 0")
    assert PartyKey.of_owner(tmp_path / "keys", "party 0") == key
    assert key.stored
    assert stat.S_IMODE((tmp_path / "keys" / KEY_FILE).stat().st_mode) == 0o600
    assert PartyKey.of_owner(tmp_path / "others", "party 0").public != key.public


def test_a_new_key_comes_with_the_head_of_an_empty_ledger(tmp_path):
    key = PartyKey.of_owner(tmp_path, "party 0")
    assert HeadFile(tmp_path / HEAD, key).read() == (EMPTY, True)


def test_a_lost_key_is_not_replaced_while_the_head_of_its_ledger_is_there(tmp_path):
    PartyKey.of_owner(tmp_path, "party 0")
    (tmp_path / KEY_FILE).unlink()
    with pytest.raises(UserError, match="Restore it from a copy"):
        PartyKey.of_owner(tmp_path, "party 0")


def test_a_seed_gives_the_same_key_and_writes_nothing(tmp_path):
    folder = tmp_path / "absent"
    key = PartyKey.of_owner(folder, "party 0", 3)
    assert key == PartyKey.of_owner(folder, "party 0", 3)
    assert not folder.exists()
    others = {PartyKey.of_owner(folder, owner, 3).public for owner in ("party 1", "party 01")}
    assert len(others | {key.public, PartyKey.of_owner(folder, "party 0", 4).public}) == 4


def test_a_damaged_key_is_refused(tmp_path):
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(UserError, match="5 bytes, not 32"):
        PartyKey.of_owner(tmp_path, "party 0")


def test_the_secret_is_not_printed(tmp_path):
    key = PartyKey.of_owner(tmp_path, "party 0")
    assert key.secret.hex() not in repr(key)
    assert str(key.secret) not in repr(key)


def test_a_signature_is_of_these_bytes_by_this_key():
    key, other = PartyKey(b"a" * 32), PartyKey(b"b" * 32)
    signature = key.sign(b"statement")
    assert verify(key.public, b"statement", signature)
    assert key.check(b"statement", signature)
    assert not verify(key.public, b"statements", signature)
    assert not verify(other.public, b"statement", signature)


@given(st.text(), st.text())
def test_malformed_keys_and_signatures_are_false_and_no_error(public, signature):
    assert not verify(public, b"statement", signature)
    assert not verify(PartyKey(b"a" * 32).public, b"statement", signature)
