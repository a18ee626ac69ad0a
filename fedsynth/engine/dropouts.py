"""Parties that dropped out of a stage: who, since which question, and why.

A party that was late or lost once is not asked again in this stage: a hung party would cost its
whole timeout in every round. Who is missing is on disk before the curator uses what the others
answered, so that a curator that crashes and asks the same question again uses the very same
answers: nothing is charged twice, and no two sums over different parties ever answer one question.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from fedsynth.storage.files import atomic_write, disk_errors


class DropoutRegistry:
    """Who is gone in one stage; kept in a file of the curator."""

    def __init__(self, path: Path) -> None:
        self._path, self._turn = path, threading.Lock()  # a curator may ask from several threads
        self._by_question: dict[str, list[int]] = {}  # digest -> who was gone when it was answered
        self._reasons: dict[int, str] = {}
        self._now: list[int] = []  # changed in place: a checkpoint of the loop restores it
        if path.exists():
            known = json.loads(path.read_text(encoding="utf-8"))
            self._by_question = known["questions"]
            self._reasons = {int(party): text for party, text in known["reasons"].items()}

    @property
    def now(self) -> list[int]:
        """Who is gone at this point of the conversation; belongs into its checkpoints."""
        return self._now

    @property
    def reasons(self) -> dict[int, str]:
        """Why parties are gone, and since which question."""
        return self._reasons

    def before(self, digest: str) -> list[int]:
        """Who is not to be asked this question."""
        with self._turn:
            for party in self._by_question.get(digest, []):
                self._add(party)
            return list(self._now)

    def note(self, digest: str, reasons: dict[int, str], question: str) -> None:
        """These parties did not answer this question; on disk when this returns. Without a digest:
        they are gone, but their answers to the question count."""
        with self._turn:
            for party, reason in reasons.items():
                self._add(party)
                self._reasons[party] = f"gone since {question}: {reason}"
            if reasons:
                if digest:
                    self._by_question[digest] = list(self._now)
                known: dict[str, Any] = {"questions": self._by_question, "reasons": self._reasons}
                with disk_errors(self._path):
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    atomic_write(self._path, json.dumps(known).encode())

    def _add(self, party: int) -> None:
        if party not in self._now:
            self._now.append(party)


def gone(path: Path) -> dict[int, str]:
    """Parties that dropped out, with the reason, from the curator's file."""
    return DropoutRegistry(path).reasons
