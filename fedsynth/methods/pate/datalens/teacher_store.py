"""What a party keeps at home of its teachers: a journal of every round, and now and then them all.

Teachers take gigabytes, so they are not saved every round. After a crash the newest saved state is
loaded (or fresh teachers are made: all of it is keyed) and the rounds since are trained again from
the journal, bit for bit; a round that was answered before gets its counted votes from the journal.
So noise that is keyed by a request never meets other votes. Everything lies in the party's own
folder under names that are removed when the releases are made.
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
from fedsynth.methods.pate.datalens.teachers import Question, TeacherEnsemble
from fedsynth.privacy.mechanisms.votes import VoteCounts
from fedsynth.storage.files import atomic_write, disk_errors, sync_directory

EVERY_SECONDS = 60.0
SHARE = 20  # saving takes a twentieth of the time at most
_log = logging.getLogger("fedsynth.party")


class TeacherStore:
    """The teachers of one party in one stage, and the folder that remembers them."""

    def __init__(self, folder: Path, party: int, ensemble: TeacherEnsemble) -> None:
        self._folder, self._party, self._ensemble = folder, party, ensemble
        self._saved = folder / "teachers.checkpoint"
        self._due = time.monotonic() + EVERY_SECONDS

    def answer(self, request: Request) -> VoteCounts:
        """The counted votes for a request; makes up for what has to be trained before."""
        number, digest, ensemble = request.round, request.digest(), self._ensemble
        known = self._read(number)
        if known is not None:
            if known["digest"] != digest:
                raise UserError(
                    f"party {self._party} answered another question in round {number} of datalens "
                    "and its teachers have learnt from it: the curator's folder was changed in the "
                    "middle of a stage. Start the run anew."
                )
            return VoteCounts(ensemble.recipe.rule, known["sums"])
        if not 0 <= number < ensemble.recipe.rounds:
            raise UserError(
                f"party {self._party} was asked for round {number} of datalens; the budget pays "
                f"for rounds 0..{ensemble.recipe.rounds - 1}."
            )
        question = self._question(number, request.arrays)
        self._bring_to(number)
        tally = ensemble.round(question)
        if tally is None:
            raise RuntimeError("a round with votes has a tally")
        self._write(number, {"digest": digest, "sums": tally.sums, "arrays": dict(request.arrays)})
        if number + 1 == ensemble.recipe.rounds:
            ensemble.end()
            self._saved.unlink(missing_ok=True)
        else:
            self._save_if_due()
        return tally

    def _question(self, number: int, arrays: Arrays) -> Question:
        like = torch.empty(0, dtype=self._ensemble.dtype, device=self._ensemble.device)
        return Question.of(number, arrays, self._ensemble.recipe, self._ensemble.stage, like)

    def _bring_to(self, number: int) -> None:
        """Bring the teachers to where this round starts."""
        ensemble = self._ensemble
        if not ensemble.whole or ensemble.done > number:
            ensemble.begin()
            if self._saved.exists() and not self._load():
                ensemble.begin()
            self._due = time.monotonic() + EVERY_SECONDS
        for earlier in range(ensemble.done, number):
            known = self._read(earlier)
            if known is None:
                raise UserError(
                    f"party {self._party} was asked for round {number} of datalens and never for "
                    f"round {earlier}: rounds come in order. Start the run anew."
                )
            ensemble.round(self._question(earlier, known["arrays"]), votes=False)
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
        self._due = ended + max(EVERY_SECONDS, SHARE * (ended - begun))

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
        rounds = ensemble.done if done is None else done
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
        ensemble.done = done
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
