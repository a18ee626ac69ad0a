"""Charges the ledger for each mechanism call before any noise is sampled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dp_accounting import DpEvent

from fedsynth.core.plan import SERVER_VIEW, PartyPlan, View
from fedsynth.privacy.accounting.events import disclosed, repeated, to_json
from fedsynth.privacy.ledger import Entry, Ledger
from fedsynth.privacy.noise import NoiseKey, NoiseStream, Streams


@dataclass
class _Reservation:
    """Spending that is charged in advance: `times` uses of one event, each with its own number."""

    entry: Entry
    event: object
    times: int
    used: set[int]


class Charger:
    """Charges one party's ledger while the party answers one request."""

    def __init__(
        self,
        *,
        plan: PartyPlan,
        stage: int,
        ledger: Ledger,
        key: NoiseKey,
        request_digest: str,
        data_fingerprint: str,
    ) -> None:
        self._plan, self._stage, self._ledger, self._key = plan, stage, ledger, key
        self._digest, self._fingerprint = request_digest, data_fingerprint
        self.entries: list[str] = []
        self._reservation: _Reservation | None = None
        self._labels: set[str] = set()  # charged while this request is answered
        self._views: set[View] = set()  # for which these charges count

    @contextmanager
    def reserve(self, event: DpEvent, times: int, name: str = "release") -> Iterator[None]:
        """Charge `times` uses of `event` with one ledger entry; see `Guard.reserve`."""
        entry = self.charge(repeated(event, times), f"reservation {name}")
        self._reservation = _Reservation(entry, to_json(event), times, set())
        try:
            yield
        finally:
            self._reservation = None

    def charge_call(self, event: DpEvent, call: int, view: View) -> Streams:
        """Charge use number `call` of a mechanism, or take it from the reservation.

        Returns:
            The secret random streams of this use, by purpose.

        Raises:
            PermissionError: The use was not reserved, or its number was used before.
        """
        if self._reservation is None:
            entry = self.charge(event, f"call {call}", view)
        else:
            entry = self._reservation.entry
            if to_json(event) != self._reservation.event:
                raise PermissionError("the mechanism costs another event than was reserved")
            if view.text != entry.view:
                raise PermissionError(f"reserved for the view {entry.view!r}, not {view.text!r}")
            if call in self._reservation.used or not 0 <= call < self._reservation.times:
                raise PermissionError(f"call {call} was not reserved or is used already")
            self._reservation.used.add(call)

        def streams(*purpose: object) -> NoiseStream:
            return self._key.stream(entry.hash, call, self._fingerprint, *purpose)

        return streams

    def charge(self, event: DpEvent, label: str, view: View = SERVER_VIEW) -> Entry:
        """Charge once under this label.

        The ledger takes an equal charge of an equal request on equal data for a replay, with the
        same noise; two uses in one answer must therefore differ in their label.
        """
        if label in self._labels and event != disclosed():
            raise PermissionError(f"{label} is used already in this answer: number your calls")
        self._labels.add(label)
        entry = self._ledger.reserve(
            event,
            stage=self._stage,
            label=label,
            digest=self._digest,
            data=self._fingerprint,
            view=view,
            expected=self._plan.event,
        )
        if entry.hash not in self.entries:
            self.entries.append(entry.hash)
            self._views.add(view)
        return entry

    def record_release(self, payload_hash: str) -> None:
        """Record the hash of an answer before it leaves.

        A plain hash is for answers that the server may know. Values with less than all of their
        noise could be found by trying: their hash is keyed, and tells nothing without the noise
        key.

        Raises:
            LedgerConflict: This request was answered with another payload before.
        """
        payload = f"sha256:{payload_hash}"
        if self._views != {SERVER_VIEW}:
            payload = f"hmac-sha256:{self._key.fingerprint(bytes.fromhex(payload_hash))}"
        self._ledger.record_release(
            payload,
            stage=self._stage,
            digest=self._digest,
            data=self._fingerprint,
            view=next(iter(self._views)) if len(self._views) == 1 else SERVER_VIEW,
        )
