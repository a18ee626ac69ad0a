"""The file of a ledger with its head: locked, verified before each use, durable after each entry.

Every point at which a process can die is covered:

* in the middle of a line: the head does not know it, nothing was computed, the line is cut off;
* after the line, before the head: nothing was computed; the entry is signed and counts (waste);
* in the middle of the head: its other slot is whole and one entry older, the entry counts;
* after the head: the entry is found again, and the same noise is drawn from it.

A power cut keeps every line. It may leave an older head, because a head is forced to the disk at
most once per second: the entries after it are signed and count. A loss is not seen only if the end
of the ledger is cut off as well, before the next use and no further back than that head.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from filelock import FileLock

from fedsynth.core.errors import UserError
from fedsynth.privacy.ledger_entry import MAX_LINE, PROTOCOL, Entry, chained, damaged
from fedsynth.privacy.ledger_head import EMPTY, GENESIS, Head, HeadFile, LedgerDamaged
from fedsynth.privacy.party_key import PartyKey, verify
from fedsynth.storage.files import sync_directory

SYNC_SECONDS = 1.0
WAY_OUT = (
    "Restore it from a copy. Without one, what was spent is unknown: release nothing more from "
    "these records. In a simulation, start the run again in another directory."
)


@dataclass(frozen=True)
class _PublicKey:
    """A key that can check and not sign."""

    public: str

    def check(self, data: bytes, signature: str) -> bool:
        return verify(self.public, data, signature)

    def sign(self, data: bytes) -> str:
        raise PermissionError("a public key cannot sign")


def head_gap(path: Path, entries: Sequence[Entry]) -> str:
    """The difference between a ledger and its head, for readers without the party's key.

    Args:
        path: The file of the head.
        entries: All entries of the ledger, verified.

    Returns:
        Words for the difference, or "" where there is none.

    Raises:
        LedgerDamaged: The head was not signed by the key of these entries.
    """
    found = HeadFile(path, _PublicKey(entries[-1].signer)).read()
    if found is None:
        return f"{path} is missing"
    head, whole = found
    if head.length > len(entries):
        return f"{len(entries)} entries are left of the {head.length} that {path.name} knows of"
    if head.length and entries[head.length - 1].hash != head.hash:
        return f"{path.name} knows of other entries"
    if not whole and head.length == len(entries):
        return f"{path.name} is damaged"
    return ""


class LedgerFile:
    """The verified entries of one ledger, as this process knows them."""

    def __init__(self, path: Path, key: PartyKey, head: Path) -> None:
        self.path, self._key, self._head = path, key, HeadFile(head, key)
        self.readings = 0  # of the whole file; entries known before are then new objects
        self._synced = -math.inf  # the time at which the head was last forced to the disk
        self._forget()

    def _forget(self) -> None:
        self.entries: list[Entry] = []
        self.readings += 1
        self._size = 0  # bytes of these entries
        self._seen: tuple[int, ...] = ()  # the state of the file in which they were found

    @property
    def state(self) -> Head:
        """What the head says when it knows all of these entries."""
        last = self.entries[-1].hash if self.entries else GENESIS
        return Head(len(self.entries), self._size, last)

    @contextmanager
    def locked(self) -> Iterator[IO[bytes]]:
        """Lock the file against other processes, with all their entries read and verified."""
        with ExitStack() as stack:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(FileLock(f"{self.path}.lock"))
                head, whole = self._read_head()
                file = stack.enter_context(open(self.path, "a+b", buffering=0))
                self._catch_up(file, head, whole)
            except OSError as error:
                raise UserError(
                    f"cannot open the ledger {self.path}: {error.strerror}. Nothing was released."
                ) from error
            yield file

    def _read_head(self) -> tuple[Head, bool]:
        """The head of this ledger; the first use of a new ledger creates it."""
        found = self._head.read()
        exists = self.path.exists()
        if found is None:
            if exists or self.entries or self._key.stored:
                raise self._refused(f"its head {self._head.path} is missing")
            self._head.create()
            return EMPTY, True
        if not exists and (found[0].length or self.entries):
            raise self._refused("the file is missing, and its head knows of entries")
        return found

    def _catch_up(self, file: IO[bytes], head: Head, whole: bool) -> None:
        """Read entries of other processes, compare all with the head, and cut off a line that a
        crash left incomplete.

        Entries that the head does not know yet are of a process that died before it could write the
        head, and are counted: they are signed, so that nobody else can have written them."""
        state = _state_of(file)
        if whole and state == self._seen and head == self.state:
            return
        size = state[1]
        if size < head.size:
            raise self._refused(f"it holds {size} bytes, and its head knows of {head.size}")
        if head.length < len(self.entries):
            raise self._refused(f"its head {self._head.path} is older than what was written")
        if not (self._seen and state[0] == self._seen[0] and size > self._size):
            self._forget()
        self._read_tail(file, size, head)
        known = [entry for entry in self.entries if entry.seq >= head.length]
        if not whole and not known:
            raise self._refused(f"its head {self._head.path} is damaged")
        if size > self._size:
            os.ftruncate(file.fileno(), self._size)
        self._seen = _state_of(file)

    def _read_tail(self, file: IO[bytes], size: int, head: Head) -> None:
        """Read and verify what follows the known entries, and bring the head up to the last one."""
        name = self.path.name
        prev = self.entries[-1].link if self.entries else GENESIS
        file.seek(self._size)
        text = file.read(max(0, size - self._size))
        try:
            found = list(chained(text, name, len(self.entries), prev))
        except LedgerDamaged as error:
            raise LedgerDamaged(f"{error} Nothing was released. {WAY_OUT}") from error
        for entry, length in found:
            if entry.protocol != PROTOCOL:
                raise LedgerDamaged(
                    f"ledger {name} was written by an earlier version: it can be read, and not "
                    "continued. Start a new run."
                )
            if entry.signer != self._key.public:
                raise self._refused(f"line {entry.seq + 1} was signed by another key")
            # The signature of the head's entry covers the chain before it.
            if entry.seq + 1 >= head.length and not entry.is_signed():
                raise damaged(name, entry.seq + 1, "its signature is false. " + WAY_OUT)
            self._remember(entry, length)
            if entry.seq + 1 == head.length and self.state != head:
                raise self._refused("it was rewritten: its head knows of other entries")
            if entry.seq + 1 > head.length:
                self._head.write(self.state)
        if len(self.entries) < head.length:
            raise self._refused(
                f"{len(self.entries)} whole lines are left of the {head.length} that its head "
                "knows of"
            )

    def _refused(self, reason: str) -> LedgerDamaged:
        return LedgerDamaged(f"ledger {self.path}: {reason}. Nothing was released. {WAY_OUT}")

    def append(self, file: IO[bytes], entry: Entry, *, durable_head: bool = True) -> None:
        """Write the next entry; it is on disk, and the head counts it, when this returns.

        Args:
            file: The locked file.
            entry: The entry.
            durable_head: Whether the head is forced to the disk if a second has passed.

        Raises:
            UserError: The disk refuses. An entry that was written already counts.
        """
        raw = (entry.line() + "\n").encode()
        if len(raw) > MAX_LINE:
            raise UserError(f"the event of {entry.label!r} is too long for a ledger.")
        try:
            written = file.write(raw)
            if written != len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
            if self._size == 0:
                sync_directory(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):  # a line that stays is waste, never a hidden cost
                os.ftruncate(file.fileno(), self._size)
            raise self._unwritten(self.path, error) from error
        try:
            state = Head(len(self.entries) + 1, self._size + len(raw), entry.hash)
            now = time.monotonic()
            durable = durable_head and now - self._synced >= SYNC_SECONDS
            self._head.write(state, durable=durable)
            self._synced = now if durable else self._synced
        except OSError as error:  # the line stays: it is counted when the ledger is read again
            raise self._unwritten(self._head.path, error) from error
        self._remember(entry, len(raw))
        self._seen = _state_of(file)

    def _unwritten(self, path: Path, error: OSError) -> UserError:
        return UserError(
            f"cannot write the ledger {path}: {error.strerror}. "
            "The event was not recorded, so nothing was released."
        )

    def _remember(self, entry: Entry, length: int) -> None:
        self.entries.append(entry)
        self._size += length


def _state_of(file: IO[bytes]) -> tuple[int, ...]:
    """Inode, size and times of an open file: unchanged, it was not written to."""
    found = os.fstat(file.fileno())
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
