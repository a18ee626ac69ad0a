"""The signed length and last hash of a ledger, kept in a file of its own.

A chain of hashes does not show that its end is missing. The head does: it is written after each
entry is on disk and before anything that the entry pays for is computed, so that a ledger that
holds less than its head says has lost entries.

The file has two slots of fixed size, written in turn: a write that a power cut tears leaves the
other slot, which is one entry older. That one is accepted only if the ledger is ahead of it, as it
is after such a cut; otherwise a destroyed slot would hide the last entry.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fedsynth.core.errors import UserError
from fedsynth.storage.files import atomic_write

HEAD = "ledger.head"
GENESIS = "0" * 64  # the hash before the first entry
SLOT = 512  # bytes, of which a disk writes all or none
_SUBJECT = b"fedsynth ledger head\n"


class LedgerError(UserError):
    """A ledger and what is asked of it, or what it should hold, do not fit: nothing is released."""


class LedgerDamaged(LedgerError):
    """A ledger that is not as its party wrote it."""


class Signer(Protocol):
    """A key that signs, and knows its own signatures."""

    @property
    def public(self) -> str:
        """The public key in hexadecimal."""

    def sign(self, data: bytes) -> str:
        """The signature of these bytes."""

    def check(self, data: bytes, signature: str) -> bool:
        """True if this key signed these bytes."""


@dataclass(frozen=True)
class Head:
    """The state of a ledger after one of its entries."""

    length: int  # entries
    size: int  # bytes
    hash: str  # of the last entry

    def statement(self) -> bytes:
        """The bytes that are signed."""
        return _SUBJECT + _canonical(vars(self))


EMPTY = Head(0, 0, GENESIS)


class HeadFile:
    """The head of one ledger on disk."""

    def __init__(self, path: Path, key: Signer) -> None:
        self.path, self._key = path, key
        self._content = b""  # as last read or written, with its meaning
        self._meaning: tuple[Head, bool] = EMPTY, False

    def create(self) -> None:
        """Write the head of an empty ledger, durably."""
        atomic_write(self.path, self._slot(EMPTY) + _BLANK, mode=0o600)

    def read(self) -> tuple[Head, bool] | None:
        """The head, and whether both slots are whole; None if there is no file.

        Raises:
            LedgerDamaged: No slot was signed by this key.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if content != self._content or not content:
            self._meaning = self._parse(content)
            self._content = content
        return self._meaning

    def write(self, head: Head, *, durable: bool = True) -> str:
        """Replace the older slot, and return the signature.

        Args:
            head: The new state, one entry after the present one.
            durable: Whether the slot is on disk when this returns. A head that a power cut makes
                older costs nothing: the ledger is then ahead, and its entries are signed.
        """
        slot = self._slot(head)
        start = SLOT * (head.length % 2)
        file = os.open(self.path, os.O_WRONLY)
        try:
            if os.pwrite(file, slot, start) != SLOT:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                getattr(os, "fdatasync", os.fsync)(file)
        finally:
            os.close(file)
        content = self._content if len(self._content) == 2 * SLOT else self.path.read_bytes()
        self._content = content[:start] + slot + content[start + SLOT :]
        self._meaning = head, True
        return str(json.loads(slot)["signature"])

    def _slot(self, head: Head) -> bytes:
        fields = {**vars(head), "signature": self._key.sign(head.statement())}
        return _canonical(fields).ljust(SLOT - 1) + b"\n"

    def _parse(self, content: bytes) -> tuple[Head, bool]:
        if len(content) == 2 * SLOT:
            slots = [content[:SLOT], content[SLOT:]]
            heads = [self._signed(slot, number) for number, slot in enumerate(slots)]
            found = [head for head in heads if head is not None]
            if found:
                head = max(found, key=lambda head: head.length)
                other = slots[(head.length + 1) % 2]
                if head == EMPTY:
                    return head, other == _BLANK
                former = {found.length for found in found} - {head.length}
                return head, former == {head.length - 1}
        raise LedgerDamaged(
            f"the head {self.path} is damaged or was not signed by this party's key: restore it "
            "from a copy. Nothing was released."
        )

    def _signed(self, slot: bytes, number: int) -> Head | None:
        """What this slot says, if it is whole, in its own place and signed."""
        try:
            fields = json.loads(slot)
            signature = fields.pop("signature")
            head = Head(**fields)
            whole = (
                slot == _canonical({**vars(head), "signature": signature}).ljust(SLOT - 1) + b"\n"
            )
            place = head.length % 2 == number
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return head if whole and place and self._key.check(head.statement(), signature) else None


_BLANK = b" " * (SLOT - 1) + b"\n"


def _canonical(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
