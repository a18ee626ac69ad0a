"""The lines of a ledger: their form, their hashes, and how they are read and checked.

Protocol 2, which is written, has for each entry

* the chain: `prev` is the hash of all of the entry before, signature included;
* the signature of the entry's hash by the party's key, so that nobody else can write a chain;
* the fingerprint of the data that the entry was paid for, keyed and salted by the entry's place:
  no two entries of a ledger can be linked by it, and only the party can tell which data it means;
* the budget with all that its epsilon means.

Protocol 1, without these, is read and not continued. Nothing read is believed before it is checked:
a line that is too long, too deep, not canonical or not an entry is `LedgerDamaged`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting.events import composed, from_json
from fedsynth.privacy.ledger_head import GENESIS, LedgerDamaged, Signer
from fedsynth.privacy.party_key import verify

PROTOCOL = 2
MAX_LINE = 1 << 23  # bytes
MAX_DEPTH = 40  # of nested objects and lists in a line; events have a few
MAX_DIGITS = 18  # of a whole number
_SUBJECT = b"fedsynth ledger entry\n"
_HASH_DIGITS, _SIGNATURE_DIGITS = 64, 128

CHARGE, RELEASE = "charge", "release"
KINDS = (CHARGE, RELEASE)
EXTRACT = b'{"form":"fedsynth ledger extract 1"}\n'  # the line before each extract of a file


@dataclass(frozen=True)
class Entry:
    """One line of a ledger: a charge and what it was for, or a release that charges paid for."""

    seq: int
    job: str
    party: int
    stage: int
    label: str
    digest: str  # of the request this spending answers
    view: str  # `View.text` of the view that counts the event; closer to the party, more is seen
    event: dict[str, Any]
    noise: str  # where the noise comes from
    key: str  # name of the noise key, so that a replay is known to draw the same noise
    prev: str
    hash: str
    protocol: int = 1
    kind: str = CHARGE
    data: str = ""  # `data_mark` of the records that it was paid for
    unit: str = ""
    relation: str = ""
    delta: float = 0.0
    budget: float = math.inf  # epsilon of the whole job
    accounting: str = ""
    payload: str = ""  # of a release: the hash of what left
    signer: str = ""  # the party's public key
    signature: str = ""

    @property
    def job_name(self) -> str:
        """The name of the job's releases: a real party adds a digest, as two jobs may share it."""
        return self.job.partition(" ")[0]

    @property
    def link(self) -> str:
        """The `prev` of the next entry."""
        if self.protocol == 1:
            return self.hash
        return hashlib.sha256(bytes.fromhex(self.hash) + bytes.fromhex(self.signature)).hexdigest()

    @property
    def privacy_event(self) -> DpEvent:
        """The event that was charged."""
        return from_json(self.event)

    def stored(self) -> dict[str, Any]:
        """The stored fields: those of the entry's protocol, a budget without limit as None."""
        names = _V1 if self.protocol == 1 else _V2
        values = {name: getattr(self, name) for name in names}
        if values.get("budget") == math.inf:
            values["budget"] = None
        return values

    def line(self) -> str:
        """The canonical text of this entry."""
        return _canonical(self.stored())

    def is_signed(self) -> bool:
        """True if the party that the entry names has signed it."""
        return verify(self.signer, statement(self.hash), self.signature)


_V2 = tuple(field.name for field in fields(Entry))
_V1 = _V2[: _V2.index("protocol")]


def statement(entry_hash: str) -> bytes:
    """The bytes that a party signs for an entry with this hash."""
    return _SUBJECT + bytes.fromhex(entry_hash)


def signed_entry(values: Mapping[str, Any], key: Signer) -> Entry:
    """The entry of protocol 2 with these fields, hashed and signed."""
    unsigned = Entry(**values, protocol=PROTOCOL, signer=key.public, hash="")
    hash_ = entry_hash(unsigned)
    return Entry(
        **values,
        protocol=PROTOCOL,
        signer=key.public,
        hash=hash_,
        signature=key.sign(statement(hash_)),
    )


def entry_hash(entry: Entry) -> str:
    """The SHA-256 of an entry's fields other than this hash and the signature."""
    body = {k: v for k, v in entry.stored().items() if k not in ("hash", "signature")}
    return hashlib.sha256(_canonical(body).encode()).hexdigest()


def data_mark(fingerprint: str, prev: str, job: str) -> str:
    """The fingerprint of a party's data in the entry of `job` that follows `prev`.

    `fingerprint` is keyed, so the mark tells nothing to others; it is salted by the entry's place,
    so that two entries do not show whether they were paid for the same data.
    """
    return hashlib.sha256(f"data {len(job)} {job} {prev} {fingerprint}".encode()).hexdigest()


def read_entries(path: Path, job: str | None = None) -> list[Entry]:
    """All complete entries of a ledger file, verified; those of one job if it is given.

    A last line without its newline is not an entry. Whether entries are missing from the end is
    known to the ledger's head alone: `Ledger` compares them.

    Raises:
        LedgerDamaged: A line is not an entry, the hash chain is broken, or a signature is false.
    """
    text = path.read_bytes() if path.exists() else b""
    entries = verified_chain(text, path.name)
    return entries if job is None else [entry for entry in entries if entry.job == job]


def read_charges(path: Path, job: str | None = None) -> list[Entry]:
    """The charges among `read_entries`, which has releases as well."""
    return [entry for entry in read_entries(path, job) if entry.kind == CHARGE]


def read_chains(path: Path) -> list[list[Entry]]:
    """All chains of a file that holds several ledgers one after the other, each verified; of a file
    with extracts, the lines of each extract."""
    if (text := path.read_bytes()).startswith(EXTRACT):
        parts = text.split(EXTRACT)[1:]
        extracts = [
            verified_extract(part, f"{path.name}, extract {number}")
            for number, part in enumerate(parts, start=1)
        ]
        return [extract for extract in extracts if extract]
    pieces: dict[tuple[int, str], list[bytes]] = {}
    here = 0, ""
    for number, raw in enumerate(_lines(text), start=1):
        found = _object(raw, path.name, number)
        owner = f"{printable(found.get('job'))}, party {printable(found.get('party'))}"
        if "protocol" not in found:
            here = 0, owner  # its chains have one job each, and may alternate
        elif found.get("prev") == GENESIS or here == (0, ""):
            here = number, owner
        pieces.setdefault(here, []).append(raw)
    chains = [
        verified_chain(b"".join(lines), f"{path.name} of {owner}")
        for (_, owner), lines in pieces.items()
    ]
    return [chain for chain in chains if chain]


def verified_chain(text: bytes, name: str) -> list[Entry]:
    """The complete entries of this text, which is one whole chain.

    Raises:
        LedgerDamaged: A line is not an entry, the hash chain is broken, or a signature is false.
    """
    entries = [entry for entry, _ in chained(text, name, 0, GENESIS)]
    # The last signature covers the last hash, and with it the whole chain.
    if entries and entries[-1].protocol > 1 and not entries[-1].is_signed():
        raise damaged(name, len(entries), "its signature is false")
    if len({entry.signer for entry in entries}) > 1:
        raise damaged(name, len(entries), "the chain is signed by several keys")
    return entries


def verified_extract(text: bytes, name: str) -> list[Entry]:
    """The entries of one job in this text, a part of a ledger as its party signed it.

    Lines of other jobs may be missing between them. A line is signed itself, or linked to a line
    that is.

    Raises:
        LedgerDamaged: A line is not an entry, was changed or moved, or a signature is false.
    """
    entries: list[Entry] = []
    for number, raw in enumerate(_lines(text), start=1):
        entry = _parsed(raw, name, number)
        before = entries[-1] if entries else None
        follows = before is None or entry.seq > before.seq
        if before is not None and entry.seq == before.seq + 1:
            follows = entry.prev == before.link
        if entry.protocol == 1 or entry.hash != entry_hash(entry) or not follows:
            raise damaged(name, number, "it was changed or moved")
        entries.append(entry)
    for number, (entry, after) in enumerate(zip_longest(entries, entries[1:]), start=1):
        linked = after is not None and after.seq == entry.seq + 1
        if not linked and not entry.is_signed():
            raise damaged(name, number, "its signature is false")
    if len({(entry.signer, entry.job, entry.party) for entry in entries}) > 1:
        raise damaged(name, len(entries), "its lines belong to several parties or jobs")
    return entries


def chained(text: bytes, name: str, seq: int, prev: str) -> Iterator[tuple[Entry, int]]:
    """The complete entries in this text with their lengths, checked against the chain so far.

    Raises:
        LedgerDamaged: A line is not an entry, or the hash chain is broken.
    """
    protocol = None
    for raw in _lines(text):
        if not raw.endswith(b"\n"):
            return
        entry = _parsed(raw, name, seq + 1)
        protocol = protocol or entry.protocol
        if (
            entry.prev != prev
            or entry.seq != seq
            or entry.hash != entry_hash(entry)
            or entry.protocol != protocol
        ):
            raise damaged(
                name,
                seq + 1,
                "the hash chain is broken, so a line was changed, removed or moved. What was spent "
                "can no longer be shown; do not go on releasing from this party",
            )
        yield entry, len(raw)
        prev, seq = entry.link, seq + 1


def damaged(name: str, line: int, reason: str) -> LedgerDamaged:
    """The error for a line of a ledger."""
    return LedgerDamaged(f"ledger {name}, line {line}: {reason}.")


def printable(value: object) -> str:
    """The start of a stored text, for display: nothing in it can steer a terminal."""
    return "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in str(value)[:80])


def total(entries: list[Entry]) -> DpEvent:
    """The composition of all events of these entries."""
    return composed([entry.privacy_event for entry in entries if entry.kind == CHARGE])


def _lines(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    whole, rest = lines[:-1], lines[-1]
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _object(raw: bytes, name: str, number: int) -> dict[str, Any]:
    """The JSON object of one line.

    Numbers that no entry has are refused here, before anything computes with them."""
    try:
        if len(raw) > MAX_LINE:
            raise ValueError("too long")
        found = json.loads(raw, parse_int=_whole, parse_constant=_refuse)
        if not isinstance(found, dict) or _too_deep(found):
            raise ValueError("not an entry")
    except (ValueError, RecursionError) as error:
        raise damaged(name, number, "not an entry") from error
    return found


def _parsed(raw: bytes, name: str, number: int) -> Entry:
    values = _object(raw, name, number)
    try:
        if values.get("budget", 0.0) is None:
            values["budget"] = math.inf
        entry = Entry(**values)
        _check_fields(entry, set(values))
        if entry.protocol > 1 and raw != (entry.line() + "\n").encode():
            raise ValueError("not the canonical text")
        _check_event(_canonical(entry.event))
    except (ValueError, TypeError, RecursionError, UserError) as error:
        raise damaged(name, number, "not an entry") from error
    return entry


def _check_fields(entry: Entry, given: set[str]) -> None:
    """Refuse an entry whose fields have other types or forms than a ledger writes."""
    if given != set(_V1 if entry.protocol == 1 else _V2) or entry.protocol not in (1, PROTOCOL):
        raise ValueError("other fields")
    for field in fields(Entry):
        value = getattr(entry, field.name)
        if field.type == "int" and (type(value) is not int or value < 0):
            raise ValueError(field.name)
        if field.type == "str":
            if type(value) is not str:
                raise ValueError(field.name)
            value.encode()  # refuses half of a surrogate pair
        if field.type == "float" and (type(value) not in (int, float) or math.isnan(value)):
            raise ValueError(field.name)
    _hexadecimal(entry.prev, _HASH_DIGITS)
    _hexadecimal(entry.hash, _HASH_DIGITS)
    if entry.protocol > 1:
        _hexadecimal(entry.signer, _HASH_DIGITS)
        _hexadecimal(entry.signature, _SIGNATURE_DIGITS)
        if entry.kind not in KINDS or not 0.0 <= entry.delta <= 1.0 or entry.budget < 0.0:
            raise ValueError("out of range")


def _hexadecimal(text: str, digits: int) -> None:
    if len(text) != digits or set(text) - set("0123456789abcdef"):
        raise ValueError("not hexadecimal")


@functools.lru_cache(maxsize=4096)
def _check_event(text: str) -> None:
    """Refuse what is not an event; ledgers repeat the same few."""
    from_json(json.loads(text))


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError("too many digits")
    return int(text)


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def _canonical(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
