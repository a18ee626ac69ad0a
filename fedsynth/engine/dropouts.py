"""The parties that dropped out of a stage, with the request they did not answer and the reason.

A party that was late or lost once is not asked again in this stage, because a hung party would cost
its whole timeout in every round. The missing parties are on disk before the server uses the answers
of the others. A server that crashes and repeats the request therefore uses the same answers:
nothing is charged twice, and no two sums over different parties ever answer one request.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from fedsynth.storage.files import atomic_write, disk_errors


class DropoutRegistry:
    """The dropped parties of one stage, in a file of the server."""

    def __init__(self, path: Path) -> None:
        self._path, self._turn = path, threading.Lock()  # methods may ask from several threads
        self._by_request: dict[str, list[int]] = {}  # digest -> parties excluded from its answer
        self._reasons: dict[int, str] = {}
        self._current: list[int] = []  # changed in place: a checkpoint of the loop restores it
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self._by_request = stored["questions"]
            self._reasons = {int(party): text for party, text in stored["reasons"].items()}

    @property
    def current(self) -> list[int]:
        """The parties dropped so far; part of the checkpoints of the server's loop."""
        return self._current

    @property
    def reasons(self) -> dict[int, str]:
        """The reason per party, with the request it did not answer."""
        return self._reasons

    def excluded_for(self, digest: str) -> list[int]:
        """The parties that this request is not sent to."""
        with self._turn:
            for party in self._by_request.get(digest, []):
                self._add(party)
            return list(self._current)

    def record(self, digest: str, reasons: dict[int, str], request: str) -> None:
        """Store that these parties did not answer a request, durably.

        Args:
            digest: Of the request; empty if these parties' answers to it still count.
            reasons: The reason per party.
            request: The request in words."""
        with self._turn:
            for party, reason in reasons.items():
                self._add(party)
                self._reasons[party] = f"missing since {request}: {reason}"
            if reasons:
                if digest:
                    self._by_request[digest] = list(self._current)
                stored: dict[str, Any] = {"questions": self._by_request, "reasons": self._reasons}
                with disk_errors(self._path):
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    atomic_write(self._path, json.dumps(stored).encode())

    def _add(self, party: int) -> None:
        if party not in self._current:
            self._current.append(party)


def dropped_parties(path: Path) -> dict[int, str]:
    """The parties that dropped out, with the reason, from the server's file."""
    return DropoutRegistry(path).reasons
