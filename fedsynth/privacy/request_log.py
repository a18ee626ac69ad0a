"""The requests that a party has answered in a stage: how many, and in which form shares left.

Claim: a share of noise leaves in one form only, under masks or in an ideal sum; a share that left
in the clear too would be the private value with next to no noise. A stage of a job has no more
requests than the policy allows, also of those that cost no privacy but computing time.
"""

from __future__ import annotations

import threading
from enum import StrEnum
from pathlib import Path

from fedsynth.core.errors import Refusal, Refused, UserError
from fedsynth.storage.files import OF_PARTY, disk_errors, durable_append

COUNTED = "counted"


class Form(StrEnum):
    """The form in which an answer leaves."""

    MASKED = "masked"  # under the masks of a secure sum
    IDEAL = "ideal"  # in the ideal sum of a simulation
    CLEAR = "clear"


class RequestLog:
    """The requests of one stage, in a file of the party that is only appended to."""

    def __init__(self, folder: Path, most: int, *, durable: bool = True) -> None:
        """Open the log.

        Args:
            folder: The party's folder for the stage.
            most: The most different requests that are answered.
            durable: Whether a line is on the disk (fsync) before the answer leaves.
        """
        self._path, self._most, self._durable = folder / "requests.log", most, durable
        self._turn = threading.Lock()
        self._counted: set[str] = set()
        self._forms: dict[str, str] = {}
        for line in self._lines():
            self._take(line)

    def count(self, digest: str) -> None:
        """Count a request; a repetition counts once.

        Raises:
            Refused: There were as many as are allowed.
        """
        with self._turn:
            if digest in self._counted:
                return
            if len(self._counted) >= self._most:
                text = f"this job has made {self._most} requests, and no more are answered."
                raise Refused(Refusal.POLICY, text)
            self._add(f"{COUNTED} {digest}", durable=False)

    def bind(self, digest: str, form: Form) -> None:
        """Bind the answer to a request to one form, before it leaves.

        Raises:
            Refused: It left in another form before.
        """
        with self._turn:
            known = self._forms.get(digest)
            if known == form:
                return
            if known is not None:
                text = "the shares of this request left in another kind of sum before."
                raise Refused(Refusal.POLICY, text)
            self._add(f"{form} {digest}", durable=self._durable)

    def _add(self, line: str, *, durable: bool) -> None:
        raw = f"{line}\n".encode()
        with disk_errors(self._path, OF_PARTY):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if durable:
                durable_append(self._path, raw)
            else:
                with open(self._path, "ab", buffering=0) as file:
                    file.write(raw)
        self._take(line)

    def _take(self, line: str) -> None:
        what, _, digest = line.partition(" ")
        if what == COUNTED:
            self._counted.add(digest)
        elif what in tuple(Form):
            self._forms[digest] = what
        else:
            raise UserError(f"{self._path} is damaged: it holds {line[:20]!r}.")

    def _lines(self) -> list[str]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return text.splitlines()[: text.count("\n")]
