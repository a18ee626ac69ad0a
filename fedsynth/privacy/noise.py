"""The only source of secret randomness: DP noise and the choice of records.

A `NoiseKey` is 32 secret bytes of one party. Every stream drawn from it is a ChaCha20 key stream
whose key is HMAC-SHA256(secret, what the stream is for), so

* no seed of an experiment, of an augmentation or of a network can predict or repeat the noise;
* the same purpose gives the same noise again, which lets a crashed release be computed anew
  without spending twice; two different purposes never share noise.

The secret comes from the operating system unless `noise_seed` is set. Knowledge of a `noise_seed`
suffices to subtract the noise: that is an experiment and never a release, and `origin` states it in
every ledger and report.

Gaussian noise is exactly rounded to whole numbers (`privacy.rounded_gaussian`) and added to whole
numbers (`privacy.grid`): no bit of a release depends on float arithmetic.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedsynth.core.errors import UserError
from fedsynth.privacy.poisson_sampling import poisson_sample
from fedsynth.privacy.rounded_gaussian import rounded_gaussian
from fedsynth.storage.files import atomic_write, read_or_create

FROM_SYSTEM = "operating system entropy"
KEY_FILE = "noise.key"  # in the folder of its owner


def _bytes_of(parts: tuple[object, ...]) -> bytes:
    """An injective encoding: lengths first, so that ("ab", "c") and ("a", "bc") differ."""
    pieces = [str(p).encode() for p in parts]
    return b"".join(len(p).to_bytes(8, "big") + p for p in pieces)


class NoiseStream:
    """One stream of secret randomness; values come in order and are never drawn twice."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = Cipher(ChaCha20(key, b"\0" * 16), mode=None).encryptor()
        self._draws = 0  # of Gaussian noise

    def words(self, n: int) -> np.ndarray:
        """`n` independent values, uniform on 64 bits."""
        return np.frombuffer(self._cipher.update(b"\0" * (8 * n)), dtype="<u8")

    def rounded_gaussian(self, n: int, scale: float) -> np.ndarray:
        """`n` independent integers round(scale * Z) for standard normal Z, exact in every bit."""
        draw, self._draws = self._draws, self._draws + 1

        def further_words(pair: int, count: int) -> list[int]:
            """More binary digits of one pair: a stream of its own, so that the order in which
            processors ask for them changes nothing."""
            key = hmac.digest(self._key, _bytes_of(("further digits", draw, pair)), "sha256")
            cipher = Cipher(ChaCha20(key, b"\0" * 16), mode=None).encryptor()
            words = np.frombuffer(cipher.update(b"\0" * (8 * count)), dtype="<u8")
            return [int(word) for word in words]

        return rounded_gaussian(self.words, further_words, n, scale)

    def poisson_sample(self, records: int, sampling_rate: float) -> torch.Tensor:
        """Indices of a Poisson sample: see `privacy.poisson_sampling`."""
        return poisson_sample(self.words, records, sampling_rate)


Streams = Callable[..., NoiseStream]
"""Secret streams of one use of a mechanism, by purpose."""


@dataclass(frozen=True)
class NoiseKey:
    """The secret of one party, and its origin."""

    secret: bytes
    origin: str

    def __repr__(self) -> str:
        return f"NoiseKey(origin={self.origin!r})"

    def stream(self, *purpose: object) -> NoiseStream:
        """The stream of this purpose."""
        return NoiseStream(hmac.digest(self.secret, _bytes_of(purpose), "sha256"))

    @property
    def name(self) -> str:
        """A digest that identifies the key in ledgers and reveals nothing else."""
        return hmac.digest(self.secret, b"name", "sha256").hex()[:16]

    def fingerprint(self, *data: bytes | memoryview) -> str:
        """A keyed digest of private bytes, to detect changed data; without the secret it reveals
        nothing."""
        digest = hmac.new(self.secret, b"fingerprint", "sha256")
        for piece in data:
            digest.update(len(piece).to_bytes(8, "big"))
            digest.update(piece)
        return digest.hexdigest()

    @staticmethod
    def from_seed(noise_seed: int, owner: str) -> NoiseKey:
        """A reproducible key, for experiments only."""
        secret = hashlib.sha256(_bytes_of(("fedsynth noise_seed", noise_seed, owner))).digest()
        return NoiseKey(secret, f"noise_seed={noise_seed}")

    @staticmethod
    def of_owner(folder: Path, owner: str, noise_seed: int | None) -> NoiseKey:
        """The owner's key: from `noise_seed`, else the one kept in `folder`, made on first use.

        The key is on disk before any noise is drawn from it, readable by its owner alone."""
        if noise_seed is not None:
            return NoiseKey.from_seed(noise_seed, owner)
        path = folder / KEY_FILE
        try:
            secret = read_or_create(path, _create)
        except OSError as error:
            raise UserError(f"cannot keep the noise key in {folder}: {error.strerror}.") from error
        if len(secret) != 32:
            raise UserError(f"the noise key {path} is damaged ({len(secret)} bytes, not 32).")
        return NoiseKey(secret, FROM_SYSTEM)


def _create(path: Path) -> None:
    atomic_write(path, os.urandom(32), mode=0o600)


def destroy_key(folder: Path) -> None:
    """Overwrite and remove the key in `folder`, after the last release: the noise can then neither
    be subtracted nor drawn again."""
    path = folder / KEY_FILE
    if path.exists():
        with open(path, "r+b", buffering=0) as file:
            file.write(os.urandom(32))
            os.fsync(file.fileno())
        path.unlink()


def end_repetitions(folder: Path) -> None:
    """Destroy the key in `folder`, and remove all checkpoints below it.

    Noise of earlier releases can then neither be subtracted nor drawn again. A request that is
    repeated counts as a new one: it is charged anew where its job's plan has room, else refused."""
    destroy_key(folder)
    for checkpoint in folder.rglob("*.checkpoint*"):
        checkpoint.unlink(missing_ok=True)
