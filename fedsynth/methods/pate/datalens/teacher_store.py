"""A party's teachers on its own disk: a journal of every round, and an occasional full snapshot.

Teachers take gigabytes, so they are not saved every round. After a crash the latest snapshot is
loaded (or fresh teachers are initialised: all randomness is keyed) and the rounds since then are
trained again from the journal, bit for bit; a round that was answered before returns its vote sums
from the journal. So the noise of a request is never added to two different vote sums, which would
reveal their difference. All files lie in the party's own folder, under names that are removed after
the release.
"""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Arrays, Request
from fedsynth.methods.pate.datalens.teachers import Query, TeacherEnsemble
from fedsynth.privacy.mechanisms.votes import VoteCounts
from fedsynth.storage.files import OF_PARTY, disk_errors
from fedsynth.storage.state_file import DamagedState, read_state, write_state

EVERY_SECONDS = 60.0
SAVING_INTERVALS = 20  # the pause after a snapshot, in multiples of the time it took
_log = logging.getLogger("fedsynth.party")


class TeacherStore:
    """The teachers of one party in one stage, with their journal and snapshot."""

    def __init__(self, folder: Path, party: int, ensemble: TeacherEnsemble) -> None:
        self._folder, self._party, self._ensemble = folder, party, ensemble
        self._saved = folder / "teachers.checkpoint"
        self._due = time.monotonic() + EVERY_SECONDS

    def votes(self, request: Request) -> VoteCounts:
        """Return the vote sums for a request, after training all rounds that come before it.

        Raises:
            Refused: The request is no query of the plan, differs from an earlier one for the same
                round, or skips a round.
        """
        number, digest, ensemble = request.round, request.digest(), self._ensemble
        parameters = ensemble.parameters
        Query.check(request, parameters, ensemble.stage)
        journal = self._read(number)
        if journal is not None:
            if journal["digest"] != digest:
                raise request.refused(
                    f"differs from the one that party {self._party} answered in round {number} and "
                    "trained its teachers on: the server's folder was changed in the middle of a "
                    "stage. Start the run anew."
                )
            return VoteCounts(parameters.bounds, journal["sums"], ensemble.assignment.rule)
        query = self._query(number, request.arrays)
        self._advance_to(request)
        counts = ensemble.run_round(query)
        if counts is None:
            raise RuntimeError("a round with votes returns vote sums")
        self._write(number, {"digest": digest, "sums": counts.sums, "arrays": dict(request.arrays)})
        if number + 1 == parameters.rounds:
            ensemble.free()
            self._saved.unlink(missing_ok=True)
        else:
            self._save_if_due()
        return counts

    def _query(self, number: int, arrays: Arrays) -> Query:
        like = torch.empty(0, dtype=self._ensemble.dtype, device=self._ensemble.device)
        return Query.of(number, arrays, like)

    def _advance_to(self, request: Request) -> None:
        """Bring the teachers to the start of the round of this request."""
        ensemble, number = self._ensemble, request.round
        if not ensemble.consistent or ensemble.rounds_done > number:
            ensemble.initialise()
            if self._saved.exists() and not self._load():
                ensemble.initialise()
            self._due = time.monotonic() + EVERY_SECONDS
        for earlier in range(ensemble.rounds_done, number):
            journal = self._read(earlier)
            if journal is None:
                raise request.refused(
                    f"is for round {number}, and party {self._party} was not asked for round "
                    f"{earlier}: rounds come in order. Start the run anew."
                )
            ensemble.run_round(self._query(earlier, journal["arrays"]), vote=False)
            self._save_if_due()

    def _round_file(self, number: int) -> Path:
        return self._folder / f"round-{number}.checkpoint"

    def _write(self, number: int, content: dict[str, Any]) -> None:
        path = self._round_file(number)
        with disk_errors(path, OF_PARTY):
            write_state(path, content)

    def _read(self, number: int) -> dict[str, Any] | None:
        try:
            return dict(read_state(self._round_file(number)))
        except FileNotFoundError:
            return None
        except DamagedState as error:
            raise UserError(
                f"party {self._party} cannot read its journal of round {number} of datalens: the "
                "file is damaged. Start the run anew."
            ) from error

    def _save_if_due(self) -> None:
        begun = time.monotonic()
        if begun < self._due:
            return
        needed, free = self._ensemble.bytes, shutil.disk_usage(self._folder).free
        if needed > free:
            _log.warning("no space on the disk for datalens's teachers: a crash repeats all rounds")
        else:
            self._save()
        ended = time.monotonic()
        self._due = ended + max(EVERY_SECONDS, SAVING_INTERVALS * (ended - begun))

    def _save(self) -> None:
        """Write all teachers to one file; a crash leaves the previous snapshot untouched."""
        ensemble = self._ensemble
        content = {
            "rounds_done": ensemble.rounds_done,
            "fingerprint": ensemble.fingerprint(),
            "teachers": list(ensemble.tensors()),
        }
        with disk_errors(self._saved, OF_PARTY):
            write_state(self._saved, content)

    @torch.no_grad()
    def _load(self) -> bool:
        """Load the snapshot; False if it is damaged or belongs to other teachers."""
        ensemble = self._ensemble
        try:
            content = read_state(self._saved, mapped=True)
        except DamagedState:
            content = {}
        if content.get("fingerprint") != ensemble.fingerprint():
            _log.warning("the saved teachers of datalens are damaged: all rounds are trained again")
            return False
        for tensor, saved in zip(ensemble.tensors(), content["teachers"], strict=True):
            tensor.copy_(saved)
        ensemble.rounds_done = content["rounds_done"]
        return True
