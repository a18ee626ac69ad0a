"""The append-only ledger of all privacy spending of one party, over all of its jobs.

Guarantees:
* an entry is on disk (fsync), and counted by the ledger's head in another file, before `reserve`
  returns, and noise is drawn only afterwards: a crash may waste budget, it can never hide spending;
* entries are chained by SHA-256 and signed by the party, and the head knows the length: a changed,
  removed or reordered line, a missing end, an emptied, deleted or rewritten file is found before
  anything is released;
* an entry that would exceed the party's budget is refused and nothing is written; the budget of a
  job, with unit, relation, delta and accounting, is that of the job's first entry;
* a request for the same entry (same job, stage, label, digest and data) returns the existing one:
  noise is keyed by the entry, so that a release computed again after a crash is the same release.
  Other data under the same request are charged anew, and a second payload for it is refused.

Not covered: ledger and head put back together to an older copy of both, and the deletion of the
whole folder with the key. A later certificate or export in other hands shows either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from dp_accounting import DpEvent

from fedsynth.core.plan import SERVER_VIEW, View
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import (
    composed,
    flatten,
    from_json,
    nothing,
    to_json,
    unflatten,
)
from fedsynth.privacy.ledger_entry import (
    CHARGE,
    RELEASE,
    Entry,
    data_mark,
    read_chains,
    read_charges,
    read_entries,
    signed_entry,
    total,
)
from fedsynth.privacy.ledger_file import LedgerFile
from fedsynth.privacy.ledger_head import (
    GENESIS,
    Head,
    LedgerDamaged,
    LedgerError,
)
from fedsynth.privacy.noise import NoiseKey
from fedsynth.privacy.party_key import PartyKey

__all__ = [
    "GENESIS",
    "SLACK",
    "BudgetExceeded",
    "Entry",
    "Ledger",
    "LedgerConflict",
    "LedgerDamaged",
    "LedgerError",
    "LifetimeFilter",
    "read_chains",
    "read_charges",
    "read_entries",
    "total",
]

SLACK = 1e-9  # relative: calibration stops this side of the target, floats do not


class BudgetExceeded(Exception):
    """A refused charge: the request would exceed the party's budget."""


class LedgerConflict(LedgerError):
    """A request that contradicts what the ledger says of an earlier one."""


class LifetimeFilter(Protocol):
    """Decides whether a party may spend more, over all of its jobs."""

    def check(self, entries: Sequence[Entry], event: DpEvent) -> None:
        """Refuse `event` after these entries of all jobs; called before each new charge.

        Raises:
            BudgetExceeded: The lifetime budget does not allow the event.
        """


_Use = tuple[str, str, int, int, str, str]  # kind, job, party, stage, label, digest


class Ledger:
    """The ledger of one party, and the budget of one job, which it enforces."""

    def __init__(
        self,
        path: Path,
        *,
        party_key: PartyKey,
        noise_key: NoiseKey,
        job: str,
        party: int,
        budget: Budget,
        lifetime: LifetimeFilter | None = None,
        head: Path | None = None,
    ) -> None:
        """Open the ledger at `path`, which may hold other jobs; it is read on the first use.

        Args:
            path: The file of the ledger, made on the first charge.
            party_key: Signs the entries and the head.
            noise_key: The noise that is charged here; its name and origin enter the entries.
            job: The job whose charges are made through this object.
            party: The number of the party in this job.
            budget: The budget of this job.
            lifetime: Decides on new charges by the entries of all jobs; none: no such limit.
            head: The file of the head; default: beside the ledger, with the suffix `.head`.
        """
        self.path, self.job, self.party, self.budget = path, job, party, budget
        self.noise_key, self.party_key, self._lifetime = noise_key, party_key, lifetime
        self._file = LedgerFile(path, party_key, head or path.with_suffix(".head"))
        self._allowed: list[Counter[str]] = []  # totals counted before and found affordable
        self._forget()

    def _forget(self) -> None:
        self._readings = self._file.readings
        self._indexed = 0  # of the file's entries
        self._index: dict[_Use, list[Entry]] = {}
        self._of_job: list[Entry] = []  # the charges of this job
        self._spent: Counter[str] = Counter()  # by this job

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        """Lock the file against other processes, with all entries read, verified and indexed."""
        with self._file.locked() as file:
            if self._file.readings != self._readings:
                self._forget()
            for entry in self._file.entries[self._indexed :]:
                self._remember(entry)
            yield file

    def _remember(self, entry: Entry) -> None:
        self._indexed += 1
        use = (entry.kind, entry.job, entry.party, entry.stage, entry.label, entry.digest)
        self._index.setdefault(use, []).append(entry)
        if (entry.kind, entry.job, entry.party) == (CHARGE, self.job, self.party):
            self._of_job.append(entry)
            self._spent += flatten(from_json(entry.event))

    def reserve(
        self,
        event: DpEvent,
        *,
        stage: int,
        label: str,
        digest: str,
        data: str = "",
        view: View = SERVER_VIEW,
        expected: DpEvent | None = None,
    ) -> Entry:
        """Charge `event` and return its entry, which is on disk.

        Args:
            event: The event to charge.
            stage: The stage of the request.
            label: The name of this charge within the answer.
            digest: The digest of the request.
            data: The keyed fingerprint of the data that the answer is computed from. An entry for
                other data is no replay.
            view: The view for which the event counts.
            expected: The plan's total for this stage. It saves an epsilon per step: all spending
                within an affordable total is affordable.

        Raises:
            BudgetExceeded: The charge would exceed the budget; nothing was written.
            LedgerConflict: The entry exists with another event or another noise key, or the job
                began with another budget.
            LedgerDamaged: The ledger is not as this party wrote it.
        """
        with self._locked() as file:
            known = self._known(CHARGE, stage, label, digest, data)
            if known is not None:
                if known.event != to_json(event) or known.view != view.text:
                    raise LedgerConflict(
                        f"party {self.party}: {label!r} of stage {stage} was charged before "
                        "with another event; refusing to release it again."
                    )
                if known.key != self.noise_key.name:
                    raise LedgerConflict(
                        f"party {self.party}: {label!r} of stage {stage} was released with another "
                        "noise key, which is gone; releasing it again would spend twice."
                    )
                return known
            self._check(event, stage, expected)
            if self._lifetime is not None:
                self._lifetime.check(self._file.entries, event)
            entry = self._new(
                kind=CHARGE,
                stage=stage,
                label=label,
                digest=digest,
                data=data,
                view=view.text,
                event=to_json(event),
            )
            self._file.append(file, entry)
            self._remember(entry)
            return entry

    def record_release(
        self, payload: str, *, stage: int, digest: str, data: str = "", view: View = SERVER_VIEW
    ) -> Entry:
        """Record the hash of what is about to leave, and return its entry, which is on disk.

        Args:
            payload: The hash of the answer.
            stage: The stage of the request.
            digest: The digest of the request.
            data: The keyed fingerprint of the data that the answer was computed from.
            view: The view to which the answer goes.

        Raises:
            LedgerConflict: Another payload has left for this request and these data.
            LedgerDamaged: The ledger is not as this party wrote it.
        """
        with self._locked() as file:
            known = self._known(RELEASE, stage, RELEASE, digest, data)
            if known is not None:
                if known.payload != payload:
                    raise LedgerConflict(
                        f"party {self.party}: this request of stage {stage} was answered before "
                        "with other values; two answers with the same noise would show their "
                        "difference. The software or the machine computes other values than it "
                        "did; the former answer is the only one."
                    )
                return known
            entry = self._new(
                kind=RELEASE,
                stage=stage,
                label=RELEASE,
                digest=digest,
                data=data,
                view=view.text,
                event=to_json(nothing()),
                payload=payload,
            )
            self._file.append(file, entry, durable_head=False)
            self._remember(entry)
            return entry

    def entries(self) -> tuple[Entry, ...]:
        """All entries of all jobs, verified against the head.

        Raises:
            LedgerDamaged: The ledger is not as this party wrote it.
        """
        with self._locked():
            return tuple(self._file.entries)

    def head(self) -> Head:
        """The state of the ledger: its length and the hash of its last entry, as it is signed.

        Raises:
            LedgerDamaged: The ledger is not as this party wrote it.
        """
        with self._locked():
            return self._file.state

    def _known(self, kind: str, stage: int, label: str, digest: str, data: str) -> Entry | None:
        """The entry of this use, if these data were paid for."""
        use = (kind, self.job, self.party, stage, label, digest)
        for entry in self._index.get(use, ()):
            if entry.data == data_mark(data, entry.prev, entry.job):
                return entry
        return None

    def _new(self, *, data: str, **given: Any) -> Entry:
        """The next entry with these fields, for data of this fingerprint."""
        prev = self._file.entries[-1].link if self._file.entries else GENESIS
        fields: dict[str, Any] = {
            **given,
            "seq": len(self._file.entries),
            "job": self.job,
            "party": self.party,
            "data": data_mark(data, prev, self.job),
            "noise": self.noise_key.origin,
            "key": self.noise_key.name,
            "prev": prev,
            **self._terms(),
        }
        return signed_entry(fields, self.party_key)

    def _terms(self) -> dict[str, Any]:
        """The budget with what its epsilon means, as each entry has it."""
        return {
            "unit": str(self.budget.unit),
            "relation": str(self.budget.relation),
            "delta": float(self.budget.delta),
            "budget": float(self.budget.epsilon),
            "accounting": str(self.budget.accounting),
        }

    def _check(self, event: DpEvent, stage: int, expected: DpEvent | None) -> None:
        """Refuse spending beyond the budget. Less than an affordable total is affordable."""
        self._check_terms()
        needed = self._spent + flatten(event)
        if any(needed <= allowed for allowed in self._allowed):
            return
        if expected is not None:
            others = [from_json(e.event) for e in self._of_job if e.stage != stage]
            planned = composed([*others, expected])
            if needed <= flatten(planned) and self._cost(planned) <= self._limit():
                self._allow(flatten(planned))
                return
        after = unflatten(needed)
        if self._cost(after) > self._limit():
            raise BudgetExceeded(
                f"party {self.party} refuses: with this request it would have spent "
                f"epsilon={self._cost(after):.4g} of {self.budget.epsilon:g} at "
                f"delta={self.budget.delta:g} (unit {self.budget.unit}, relation "
                f"{self.budget.relation}, accounting {self.budget.accounting})."
            )
        self._allow(needed)

    def _allow(self, affordable: Counter[str]) -> None:
        """Keep an affordable total, and forget those that it covers."""
        self._allowed = [total for total in self._allowed if not total <= affordable]
        self._allowed.append(affordable)

    def _check_terms(self) -> None:
        """Refuse a budget that differs from the one with which the job began."""
        if self._of_job:
            for name, value in self._terms().items():
                if (former := getattr(self._of_job[0], name)) != value:
                    raise LedgerConflict(
                        f"party {self.party}: job {self.job} began with {name}={former}, and is "
                        f"now asked for with {name}={value}. The budget of a job does not change: "
                        "ask under another name."
                    )

    def _cost(self, event: DpEvent) -> float:
        if self.budget.epsilon == float("inf"):
            return 0.0
        budget = self.budget
        return epsilon(event, budget.delta, budget.accounting, budget.relation)

    def _limit(self) -> float:
        return self.budget.epsilon * (1 + SLACK)
