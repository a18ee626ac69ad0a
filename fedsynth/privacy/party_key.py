"""The signing key of one party: what it signs can be checked with its public key alone.

An Ed25519 key, stored in `party.key` of the party's folder and readable by its owner alone. It
signs the party's ledger and what the party states about its releases. Unlike the noise key it is
kept when all releases are made, because a signature is asked for long afterwards. Who holds it can
forge statements of this party and learns nothing about its records or its noise.
"""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedsynth.core.errors import UserError
from fedsynth.privacy.ledger_head import HEAD, HeadFile
from fedsynth.storage.files import atomic_write, read_or_create

KEY_FILE = "party.key"
SECRET_BYTES = 32


@dataclass(frozen=True)
class PartyKey:
    """The signing key of one party."""

    secret: bytes
    stored: bool = False  # in a file, which was made with the head of its ledger beside it

    def __repr__(self) -> str:
        return f"PartyKey(public={self.public!r})"

    @functools.cached_property
    def public(self) -> str:
        """The public key in hexadecimal."""
        return self._private.public_key().public_bytes_raw().hex()

    @functools.cached_property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.secret)

    def sign(self, data: bytes) -> str:
        """The signature of these bytes in hexadecimal; the same for the same bytes."""
        return self._private.sign(data).hex()

    def check(self, data: bytes, signature: str) -> bool:
        """True if this key signed these bytes."""
        return verify(self.public, data, signature)

    @staticmethod
    def of_owner(folder: Path, owner: str, seed: int | None = None) -> PartyKey:
        """The owner's key: derived from a seed, else the one kept in `folder`, made on first use.

        A new key comes with the head of an empty ledger, which is written first: a folder that
        holds a key and no head has lost its head.

        Args:
            folder: The party's folder for keys.
            owner: The name of the party; enters a key that is derived from a seed.
            seed: The `noise_seed` of an experiment, which makes the key reproducible and public.

        Raises:
            UserError: The folder cannot be written, or its key is damaged.
        """
        if seed is not None:
            text = f"fedsynth party key {seed} {len(owner)} {owner}"
            return PartyKey(hashlib.sha256(text.encode()).digest())
        path = folder / KEY_FILE
        try:
            secret = read_or_create(path, _create)
        except OSError as error:
            raise UserError(
                f"cannot keep the party's key in {folder}: {error.strerror}."
            ) from error
        if len(secret) != SECRET_BYTES:
            raise UserError(
                f"the party's key {path} is damaged ({len(secret)} bytes, not {SECRET_BYTES}): "
                "restore it from a copy."
            )
        return PartyKey(secret, stored=True)


def _create(path: Path) -> None:
    secret = os.urandom(SECRET_BYTES)
    head = path.with_name(HEAD)
    if head.exists():
        raise UserError(
            f"{head} is there and {path.name} is not: the key that signed this party's ledger is "
            "lost. Restore it from a copy; a new key could not tell what was spent before."
        )
    HeadFile(head, PartyKey(secret)).create()
    atomic_write(path, secret, mode=0o600)


def verify(public: str, data: bytes, signature: str) -> bool:
    """True if the holder of this public key signed these bytes; False for anything malformed."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), data)
    except (InvalidSignature, ValueError):
        return False
    return True
