"""A party's teachers on its own disk: a journal of every round, and an occasional full snapshot.

Teachers take gigabytes, so they are not saved every round. After a crash the latest snapshot is
loaded (or fresh teachers are initialised: all randomness is keyed) and the rounds since then are
trained again from the journal, bit for bit; a round that was answered before returns its vote sums
from the journal. So the noise of a request is never added to two different vote sums, which would
reveal their difference. All files lie in the party's own folder, under names that are removed after
the release.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Arrays, Request
from fedsynth.methods.pate.datalens.teachers import Query, TeacherEnsemble
from fedsynth.privacy.mechanisms.votes import VoteCounts
from fedsynth.storage.files import atomic_write, disk_errors, sync_directory

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
            UserError: The request differs from an earlier one for the same round, skips a round,
                or exceeds the rounds of the plan.
        """
        number, digest, ensemble = request.round, request.digest(), self._ensemble
        parameters = ensemble.parameters
        journal = self._read(number)
        if journal is not None:
            if journal["digest"] != digest:
                raise UserError(
                    f"party {self._party} answered another query in round {number} of datalens "
                    "and its teachers were trained on it: the server's folder was changed in the "
                    "middle of a stage. Start the run anew."
                )
            return VoteCounts(parameters.bounds, journal["sums"])
        if not 0 <= number < parameters.rounds:
            raise UserError(
                f"party {self._party} was asked for round {number} of datalens; the budget covers "
                f"rounds 0..{parameters.rounds - 1}."
            )
        query = self._query(number, request.arrays)
        self._advance_to(number)
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
        return Query.of(number, arrays, self._ensemble.parameters, self._ensemble.stage, like)

    def _advance_to(self, number: int) -> None:
        """Bring the teachers to the start of this round."""
        ensemble = self._ensemble
        if not ensemble.consistent or ensemble.rounds_done > number:
            ensemble.initialise()
            if self._saved.exists() and not self._load():
                ensemble.initialise()
            self._due = time.monotonic() + EVERY_SECONDS
        for earlier in range(ensemble.rounds_done, number):
            journal = self._read(earlier)
            if journal is None:
                raise UserError(
                    f"party {self._party} was asked for round {number} of datalens before "
                    f"round {earlier}: rounds come in order. Start the run anew."
                )
            ensemble.run_round(self._query(earlier, journal["arrays"]), vote=False)
            self._save_if_due()

    def _round_file(self, number: int) -> Path:
        return self._folder / f"round-{number}.checkpoint"

    def _write(self, number: int, content: dict[str, Any]) -> None:
        buffer = io.BytesIO()
        torch.save(content, buffer)
        path, body = self._round_file(number), buffer.getvalue()
        with disk_errors(path):
            atomic_write(path, hashlib.sha256(body).digest() + body)

    def _read(self, number: int) -> dict[str, Any] | None:
        path = self._round_file(number)
        if not path.exists():
            return None
        data = path.read_bytes()
        size = hashlib.sha256().digest_size
        if hashlib.sha256(data[size:]).digest() != data[:size]:
            raise UserError(
                f"party {self._party} cannot read what it kept of round {number} of datalens: the "
                "file is damaged. Start the run anew."
            )
        return dict(torch.load(io.BytesIO(data[size:]), weights_only=True))

    def _save_if_due(self) -> None:
        begun = time.monotonic()
        if begun < self._due:
            return
        needed, free = self._ensemble.bytes, shutil.disk_usage(self._folder).free
        if needed > free:
            _log.warning("no room on the disk for datalens's teachers: a crash costs all rounds")
        else:
            self._save()
        ended = time.monotonic()
        self._due = ended + max(EVERY_SECONDS, SAVING_INTERVALS * (ended - begun))

    def _save(self) -> None:
        """Write all teachers to one file; a crash leaves the one before untouched."""
        unfinished = self._folder / "teachers.checkpoint.unfinished"
        sha = hashlib.sha256()
        try:
            with disk_errors(self._saved):
                with unfinished.open("wb") as file:
                    head = np.frombuffer(self._header(), dtype=np.uint8)
                    for block in (head, *map(raw, self._ensemble.tensors())):
                        sha.update(block.data)
                        file.write(block.data)
                    file.write(sha.digest())
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(self._saved)
                sync_directory(self._folder)
        finally:
            unfinished.unlink(missing_ok=True)

    def _header(self, done: int | None = None) -> bytes:
        ensemble = self._ensemble
        rounds = ensemble.rounds_done if done is None else done
        fields = {"done": rounds, "belongs": ensemble.fingerprint(), "bytes": ensemble.bytes}
        return (json.dumps(fields, sort_keys=True) + "\n").encode()

    def _load(self) -> bool:
        """Fill fresh teachers from the saved file; False where it is damaged or another's."""
        ensemble, sha = self._ensemble, hashlib.sha256()
        with self._saved.open("rb") as file:
            header = file.readline(10_000)
            try:
                done = int(json.loads(header)["done"])
            except (ValueError, KeyError, TypeError):
                return self._refused()
            if header != self._header(done):
                return self._refused()
            sha.update(header)
            for tensor in ensemble.tensors():
                if not _fill(file, tensor, sha):
                    return self._refused()
            if file.read() != sha.digest():
                return self._refused()
        ensemble.rounds_done = done
        return True

    def _refused(self) -> bool:
        _log.warning("the saved teachers of datalens are damaged: all rounds are trained again")
        return False


def raw(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a tensor; on the CPU without a copy."""
    flat: np.ndarray = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return flat


def _fill(file: BinaryIO, tensor: torch.Tensor, sha: Any) -> bool:
    """Read a tensor's bytes into it; False at a file's early end."""
    here = tensor if tensor.device.type == "cpu" else tensor.cpu()
    block = raw(here)
    if file.readinto(block.data) != len(block):  # type: ignore[attr-defined]
        return False
    sha.update(block.data)
    if here is not tensor:
        tensor.copy_(here)
    return True
