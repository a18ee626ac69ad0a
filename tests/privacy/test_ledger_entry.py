"""Lines of a ledger: canonical, chained, signed; whatever else is read is named as damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.privacy.accounting.events import gaussian, nothing, repeated, to_json
from fedsynth.privacy.ledger_entry import (
    EXTRACT,
    MAX_LINE,
    Entry,
    data_mark,
    read_chains,
    read_charges,
    read_entries,
    signed_entry,
    total,
    verified_chain,
    verified_extract,
)
from fedsynth.privacy.ledger_head import GENESIS, LedgerDamaged
from fedsynth.privacy.party_key import PartyKey

KEY = PartyKey(b"k" * 32)
OTHER = PartyKey(b"o" * 32)
FORMER = Path(__file__).parents[2] / "results/split_mnist/float_noise/ledger.jsonl"


def following(entries: list[Entry], key: PartyKey = KEY, **changes: Any) -> Entry:
    """The next entry of a chain."""
    prev = entries[-1].link if entries else GENESIS
    values: dict[str, Any] = {
        "seq": len(entries),
        "job": "job",
        "party": 0,
        "stage": 0,
        "label": f"call {len(entries)}",
        "digest": "d",
        "view": "server",
        "event": to_json(gaussian(2.0)),
        "noise": "noise_seed=1",
        "key": "0123456789abcdef",
        "prev": prev,
        "data": data_mark("fingerprint", prev, "job"),
        "unit": "record",
        "relation": "add_remove",
        "delta": 1e-5,
        "budget": 8.0,
        "accounting": "pld",
    }
    return signed_entry({**values, **changes}, key)


def chain(length: int, key: PartyKey = KEY, **changes: Any) -> list[Entry]:
    """A chain of so many entries."""
    entries: list[Entry] = []
    for _ in range(length):
        entries.append(following(entries, key, **changes))
    return entries


def text(entries: list[Entry]) -> bytes:
    return "".join(entry.line() + "\n" for entry in entries).encode()


def test_what_was_written_is_read_again(tmp_path):
    entries = chain(3, budget=float("inf"))
    (tmp_path / "ledger.jsonl").write_bytes(text(entries))
    assert read_entries(tmp_path / "ledger.jsonl") == entries
    assert read_entries(tmp_path / "ledger.jsonl", "job") == entries
    assert not read_entries(tmp_path / "ledger.jsonl", "another")
    assert b"Infinity" not in text(entries)


def test_releases_are_entries_and_no_charges(tmp_path):
    entries = chain(1)
    entries.append(
        following(entries, kind="release", payload="sha256:00", event=to_json(nothing()))
    )
    (tmp_path / "ledger.jsonl").write_bytes(text(entries))
    assert read_charges(tmp_path / "ledger.jsonl") == entries[:1]
    assert total(entries) == total(entries[:1])


def test_ledgers_of_earlier_versions_are_read():
    chains = read_chains(FORMER)
    assert sum(map(len, chains)) == len(FORMER.read_text().splitlines())
    assert {entry.protocol for entries in chains for entry in entries} == {1}
    lines = "".join(entry.line() + "\n" for entries in chains for entry in entries)
    assert sorted(lines.splitlines()) == sorted(FORMER.read_text().splitlines())


def test_several_ledgers_in_one_file_are_told_apart(tmp_path):
    first, second = chain(3), chain(2, OTHER, party=1)
    (tmp_path / "all.jsonl").write_bytes(text(first) + text(second))
    assert read_chains(tmp_path / "all.jsonl") == [first, second]


def extract(entries: list[Entry]) -> bytes:
    return EXTRACT + b"".join(entry.line().encode() + b"\n" for entry in entries)


def test_extracts_hold_the_lines_of_one_job_without_the_others(tmp_path):
    """A party shows a server the lines of its job alone; lines between them are other servers'."""
    entries: list[Entry] = []
    for job in ("a", "other", "a", "a"):
        entries.append(following(entries, job=job, data="0" * 64))
    own = [entry for entry in entries if entry.job == "a"]
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(extract(own) + extract([]) + extract(chain(2, OTHER, party=1)))
    assert read_chains(path) == [own, chain(2, OTHER, party=1)]


def test_a_changed_or_mixed_extract_is_found():
    entries = chain(3)
    lines = extract(entries)[len(EXTRACT) :]
    assert verified_extract(lines, "x") == entries
    for position in range(0, len(lines), 7):
        changed = bytearray(lines)
        changed[position] ^= 1
        with pytest.raises(LedgerDamaged):
            verified_extract(bytes(changed), "x")
    for wrong in (
        entries[::-1],
        [entries[0], entries[0]],
        [entries[0], *chain(3, OTHER)[1:]],
        [entries[0], following(entries[:1], party=1)],
    ):
        with pytest.raises(LedgerDamaged):
            verified_extract(extract(wrong)[len(EXTRACT) :], "x")


def test_every_changed_byte_is_found():
    whole = text(chain(2))
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        try:
            found = verified_chain(bytes(changed), "ledger")
        except LedgerDamaged:
            continue
        assert place == len(whole) - 1, "only a last newline may be missing"
        assert len(found) == 1


@pytest.mark.parametrize("change", ["removed", "swapped", "doubled", "rehashed", "resigned"])
def test_a_chain_that_was_worked_over_is_found(change):
    entries = chain(4)
    if change == "removed":
        del entries[1]
    elif change == "swapped":
        entries[1], entries[2] = entries[2], entries[1]
    elif change == "doubled":
        entries.insert(2, entries[1])
    else:  # a cheaper first event, and all hashes computed anew, by who does not hold the key
        entries = [following([], event=to_json(gaussian(9.0)))]
        for _ in range(3):
            entries.append(following(entries, OTHER if change == "resigned" else KEY))
        if change == "rehashed":
            lines = text(entries).decode().replace(entries[-1].signature, "00" * 64)
            with pytest.raises(LedgerDamaged, match="signature"):
                verified_chain(lines.encode(), "ledger")
            return
    with pytest.raises(LedgerDamaged):
        verified_chain(text(entries), "ledger")


STRANGE = {
    "nested lists": b"[" * 100_000,
    "nested and closed": b"[" * 100_000 + b"]" * 100_000,
    "nested objects": b'{"event":' * 100_000,
    "not UTF-8": b'{"job":"\xff"}',
    "half a pair": b'{"job":"\\ud800"}',
    "NaN": b'{"delta":NaN}',
    "infinite": b'{"delta":1e999}',
    "many digits": b'{"seq":' + b"9" * 10_000 + b"}",
    "null": b"null",
    "number": b"17",
    "nothing": b"",
    "zeros": b"\0" * 1000,
    "long": b'"' + b"x" * MAX_LINE + b'"',
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_line_is_damage(tmp_path, name):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(text(chain(1)) + STRANGE[name] + b"\n")
    for read in (read_entries, read_chains):
        with pytest.raises(LedgerDamaged, match=r"line [12]: not an entry"):
            read(path)


def deep_event(depth: int) -> dict[str, Any]:
    event = to_json(gaussian(1.0))
    for _ in range(depth):
        event = {"type": "repeated", "times": 1, "event": event}
    return event


def strange_fields() -> dict[str, dict[str, Any]]:
    """Fields that this party would never write, in entries with good hashes and signatures."""
    return {
        "deep event": {"event": deep_event(60)},
        "no event": {"event": {"type": "gift"}},
        "event of text": {"event": "gaussian"},
        "negative sigma": {"event": {"type": "gaussian", "sigma": -1.0}},
        "huge count": {"event": {**to_json(repeated(gaussian(1.0), 2)), "times": 10**30}},
        "stage of text": {"stage": "0"},
        "truth for a number": {"stage": True},
        "negative stage": {"stage": -1},
        "label of a list": {"label": ["call 0"]},
        "delta above one": {"delta": 1.5},
        "negative budget": {"budget": -1.0},
        "unknown kind": {"kind": "gift"},
        "prev of text": {"prev": "x" * 64},
    }


@pytest.mark.parametrize("name", strange_fields())
def test_a_strange_field_is_damage_even_if_it_was_signed(name):
    with pytest.raises(LedgerDamaged):
        verified_chain(text([following([], **strange_fields()[name])]), "ledger")


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_damaged_text_is_read_as_a_part_or_named(data):
    """Cuts, insertions and exchanges of bytes: no other exception, and no other entry."""
    entries = chain(3)
    changed = bytearray(text(entries))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(changed)))
        end = data.draw(st.integers(start, min(len(changed), start + 200)))
        changed[start:end] = data.draw(
            st.binary(max_size=20)
            | st.sampled_from([b"\n", b"}\n{", b'"', b"[[[[", b"1e9", b"\\u"])
        )
    try:
        found = verified_chain(bytes(changed), "ledger")
    except LedgerDamaged:
        return
    assert found == entries[: len(found)]


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5))
@settings(max_examples=200, deadline=None)
def test_any_value_in_any_field_is_read_or_named(value):
    fields = json.loads(chain(1)[0].line())
    for name in fields:
        line = (json.dumps({**fields, name: value}) + "\n").encode()
        with pytest.raises(LedgerDamaged):
            verified_chain(line, "ledger")


def test_marks_of_the_same_data_cannot_be_linked():
    marks = [data_mark("fingerprint", prev, job) for prev in ("0" * 64, "1" * 64) for job in "ab"]
    assert len(set(marks)) == 4
    assert data_mark("fingerprint", "0" * 64, "a") == marks[0]
