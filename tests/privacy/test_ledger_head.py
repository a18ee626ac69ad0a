"""The head of a ledger: two signed slots, of which one survives a torn write."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.privacy.ledger_head import EMPTY, GENESIS, SLOT, Head, HeadFile, LedgerDamaged
from fedsynth.privacy.party_key import PartyKey

KEY = PartyKey(b"k" * 32)


def state(length: int) -> Head:
    """The head after so many entries."""
    return Head(length, 100 * length, f"{length:064x}" if length else GENESIS)


def written(folder: Path, length: int) -> Path:
    """A head that followed a ledger to this length."""
    file = HeadFile(folder / "ledger.head", KEY)
    file.create()
    file.read()
    for number in range(1, length + 1):
        file.write(state(number))
    return file.path


@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_the_last_state_is_read_by_the_writer_and_by_others(tmp_path, length):
    path = written(tmp_path, length)
    assert HeadFile(path, KEY).read() == (state(length), True)
    assert path.stat().st_size == 2 * SLOT


def test_no_file_is_no_head(tmp_path):
    assert HeadFile(tmp_path / "ledger.head", KEY).read() is None


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_torn_slot_leaves_the_older_one_and_is_told(tmp_path, length):
    """The older one alone is no proof: the ledger must be ahead of it."""
    path = written(tmp_path, length)
    content = bytearray(path.read_bytes())
    start = SLOT * (length % 2)
    content[start + 40 : start + SLOT] = bytes(SLOT - 40)
    path.write_bytes(content)
    assert HeadFile(path, KEY).read() == (state(length - 1), False)


def test_the_older_slot_in_place_of_the_newer_one_is_no_slot(tmp_path):
    path = written(tmp_path, 4)
    content = path.read_bytes()
    path.write_bytes(content[SLOT:] * 2)
    assert HeadFile(path, KEY).read() == (state(3), False)


def test_a_slot_of_an_older_copy_is_no_neighbour(tmp_path):
    old = written(tmp_path, 2).read_bytes()
    new = written(tmp_path, 5).read_bytes()
    (tmp_path / "ledger.head").write_bytes(new[:SLOT] + old[SLOT:])
    assert HeadFile(tmp_path / "ledger.head", KEY).read() == (state(4), False)


def test_another_keys_head_is_refused(tmp_path):
    path = written(tmp_path, 3)
    with pytest.raises(LedgerDamaged, match="not signed by this party's key"):
        HeadFile(path, PartyKey(b"o" * 32)).read()


def test_a_reader_sees_what_another_one_wrote(tmp_path):
    file = HeadFile(written(tmp_path, 2), KEY)
    assert file.read() == (state(2), True)
    HeadFile(file.path, KEY).write(state(3), durable=False)
    assert file.read() == (state(3), True)
    file.write(state(4))
    assert HeadFile(file.path, KEY).read() == (state(4), True)


@given(st.integers(0, 2 * SLOT - 1), st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_no_changed_byte_gives_a_whole_head(tmp_path_factory, place, change):
    path = written(tmp_path_factory.getbasetemp(), 3)
    content = bytearray(path.read_bytes())
    content[place] ^= change
    path.write_bytes(content)
    head, whole = HeadFile(path, KEY).read() or (EMPTY, True)
    assert not whole
    assert head in (state(2), state(3))


@given(st.binary(max_size=3 * SLOT))
def test_no_bytes_but_the_partys_are_a_head(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "strange.head"
    path.write_bytes(content)
    with pytest.raises(LedgerDamaged):
        HeadFile(path, KEY).read()
