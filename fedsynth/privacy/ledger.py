"""The append-only ledger of all privacy spending of one party in one job.

Guarantees:
* an entry is on disk (fsync) before `reserve` returns, and noise is drawn only afterwards: a crash
  may waste budget, it can never hide spending;
* entries are chained by SHA-256, so that a changed, removed or reordered line is found on reading,
  except for lines removed from the end;
* an entry that would exceed the party's budget is refused and nothing is written;
* a request for the same entry (same stage, label and digest) returns the existing one: noise is
  keyed by the entry, so that a release computed again after a crash is the same release.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from dp_accounting import DpEvent
from filelock import FileLock

from fedsynth.core.errors import UserError
from fedsynth.core.plan import SERVER_VIEW, View
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import composed, flatten, from_json, to_json
from fedsynth.privacy.noise import NoiseKey
from fedsynth.storage.files import sync_directory

GENESIS = "0" * 64
SLACK = 1e-9  # relative: calibration stops this side of the target, floats do not


class BudgetExceeded(Exception):
    """A refused charge: the request would exceed the party's budget."""


class LedgerDamaged(UserError):
    """A ledger that was changed after it was written."""


@dataclass(frozen=True)
class Entry:
    """One line of a ledger: what was spent, for what, and the hash of the line before."""

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

    def line(self) -> str:
        """The canonical text of this entry."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


def _hash(fields: dict[str, Any]) -> str:
    body = {k: v for k, v in fields.items() if k != "hash"}
    return hashlib.sha256(
        json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def read_entries(path: Path) -> list[Entry]:
    """All complete entries of a ledger file, verified.

    A last line without its newline was cut off by a crash before `reserve` returned, so no noise
    was drawn for it: it does not count.

    Raises:
        LedgerDamaged: A line is not an entry, or the hash chain is broken.
    """
    text = path.read_bytes() if path.exists() else b""
    return [entry for entry, _ in _verified(text, path.name, 0, GENESIS)]


def read_chains(path: Path) -> list[list[Entry]]:
    """All chains of a file that holds the ledgers of several jobs and parties, each verified."""
    pieces: dict[tuple[str, int], list[bytes]] = {}
    for number, raw in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        try:
            fields = json.loads(raw)
            owner = str(fields["job"]), int(fields["party"])
        except (ValueError, TypeError, KeyError) as error:
            raise LedgerDamaged(f"ledger {path.name}, line {number}: not an entry.") from error
        pieces.setdefault(owner, []).append(raw)
    chains = []
    for (job, party), lines in pieces.items():
        name = f"{path.name} of {job}, party {party}"
        chains.append([entry for entry, _ in _verified(b"".join(lines), name, 0, GENESIS)])
    return chains


def _verified(text: bytes, name: str, seq: int, prev: str) -> Iterator[tuple[Entry, int]]:
    """The complete entries in this text with their lengths, checked against the chain so far."""
    for raw in text.splitlines(keepends=True):
        if not raw.endswith(b"\n"):
            return
        try:
            entry = Entry(**json.loads(raw))
        except (ValueError, TypeError) as error:
            raise LedgerDamaged(f"ledger {name}, line {seq + 1}: not an entry.") from error
        if entry.prev != prev or entry.hash != _hash(asdict(entry)) or entry.seq != seq:
            raise LedgerDamaged(
                f"ledger {name}, line {seq + 1}: the hash chain is broken, so a line was "
                "changed, removed or moved. What was spent can no longer be shown; do not go on "
                "releasing from this party."
            )
        yield entry, len(raw)
        prev = entry.hash
        seq += 1


def total(entries: list[Entry]) -> DpEvent:
    """The composition of all events of these entries."""
    return composed([from_json(entry.event) for entry in entries])


class Ledger:
    """The ledger of one party in one job, and the budget it enforces."""

    def __init__(self, path: Path, *, job: str, party: int, budget: Budget, key: NoiseKey) -> None:
        self.path, self.job, self.party, self.budget, self.key = path, job, party, budget, key
        self._forget()
        self._allowed: list[Counter[str]] = []  # totals counted before and found affordable

    def _forget(self) -> None:
        self._entries: list[Entry] = []
        self._index: dict[tuple[int, str, str], Entry] = {}
        self._spent: Counter[str] = Counter()
        self._length = 0

    def reserve(
        self,
        event: DpEvent,
        *,
        stage: int,
        label: str,
        digest: str,
        view: View = SERVER_VIEW,
        expected: DpEvent | None = None,
    ) -> Entry:
        """Charge `event` and return its entry, which is on disk.

        Args:
            event: The event to charge.
            stage: The stage of the request.
            label: The name of this charge within the answer.
            digest: The digest of the request.
            view: The view for which the event counts.
            expected: The plan's total for this stage. It saves an epsilon per step: all spending
                within an affordable total is affordable.

        Raises:
            BudgetExceeded: The charge would exceed the budget; nothing was written.
            LedgerDamaged: The entry exists with another event or another noise key.
        """
        with self._locked() as file:
            known = self._index.get((stage, label, digest))
            if known is not None:
                if known.event != to_json(event) or known.view != view.text:
                    raise LedgerDamaged(
                        f"party {self.party}: {label!r} of stage {stage} was charged before "
                        "with another event; refusing to release it again."
                    )
                if known.key != self.key.name:
                    raise LedgerDamaged(
                        f"party {self.party}: {label!r} of stage {stage} was released with another "
                        "noise key, which is gone; releasing it again would spend twice."
                    )
                return known
            self._check(event, stage, expected)
            fields: dict[str, Any] = {
                "seq": len(self._entries),
                "job": self.job,
                "party": self.party,
                "stage": stage,
                "label": label,
                "digest": digest,
                "view": view.text,
                "event": to_json(event),
                "noise": self.key.origin,
                "key": self.key.name,
                "prev": self._entries[-1].hash if self._entries else GENESIS,
            }
            entry = Entry(**fields, hash=_hash(fields))
            self._append(file, entry)
            return entry

    def _check(self, event: DpEvent, stage: int, expected: DpEvent | None) -> None:
        """Refuse spending beyond the budget. Less than an affordable total is affordable."""
        needed = self._spent + flatten(event)
        if any(needed <= allowed for allowed in self._allowed):
            return
        if expected is not None:
            others = [from_json(e.event) for e in self._entries if e.stage != stage]
            planned = composed([*others, expected])
            if needed <= flatten(planned) and self._cost(planned) <= self._limit():
                self._allowed.append(flatten(planned))
                return
        after = composed([total(self._entries), event])
        if self._cost(after) > self._limit():
            raise BudgetExceeded(
                f"party {self.party} refuses: with this request it would have spent "
                f"epsilon={self._cost(after):.4g} of {self.budget.epsilon:g} at "
                f"delta={self.budget.delta:g} (unit {self.budget.unit}, relation "
                f"{self.budget.relation}, accounting {self.budget.accounting})."
            )
        self._allowed.append(needed)

    def _cost(self, event: DpEvent) -> float:
        if self.budget.epsilon == float("inf"):
            return 0.0
        budget = self.budget
        return epsilon(event, budget.delta, budget.accounting, budget.relation)

    def _limit(self) -> float:
        return self.budget.epsilon * (1 + SLACK)

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        """Lock the file against other processes, with all their entries read and verified."""
        with ExitStack() as stack:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(FileLock(f"{self.path}.lock"))
                file = stack.enter_context(open(self.path, "a+b", buffering=0))
            except OSError as error:
                raise UserError(
                    f"cannot open the ledger {self.path}: {error.strerror}. Nothing was released."
                ) from error
            self._catch_up(file)
            yield file

    def _catch_up(self, file: IO[bytes]) -> None:
        """Read entries of other processes, and cut off a line that a crash left incomplete."""
        end = file.seek(0, os.SEEK_END)
        if end < self._length:
            self._forget()
        if end > self._length:
            file.seek(self._length)
            prev = self._entries[-1].hash if self._entries else GENESIS
            text = file.read()
            for entry, length in _verified(text, self.path.name, len(self._entries), prev):
                self._remember(entry, length)
            os.ftruncate(file.fileno(), self._length)

    def _append(self, file: IO[bytes], entry: Entry) -> None:
        raw = (entry.line() + "\n").encode()
        try:
            written = file.write(raw)
            if written != len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
            if self._length == 0:
                sync_directory(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):  # a line that stays is waste, never a hidden cost
                os.ftruncate(file.fileno(), self._length)
            raise UserError(
                f"cannot write the ledger {self.path}: {error.strerror}. "
                "The event was not recorded, so nothing was released."
            ) from error
        self._remember(entry, len(raw))

    def _remember(self, entry: Entry, length: int) -> None:
        self._entries.append(entry)
        self._index[entry.stage, entry.label, entry.digest] = entry
        self._spent += flatten(from_json(entry.event))
        self._length += length
