"""The party's side of secure aggregation: the server learns the sum over parties alone.

The SecAgg+ protocol (Bonawitz et al. 2017, Bell et al. 2020) in Flower's order of stages, with the
key agreement and the encryption of `flwr.common.secure_aggregation`. Setup: each party makes two
key pairs. Share keys: it agrees on a key with each neighbour, and sends them shares of its first
private key and of the seed of a mask of its own, encrypted. Collect: its numbers plus its own mask,
plus or minus a mask for each neighbour, modulo 2^64; the neighbours' masks cancel in the sum.
Unmask: neighbours give the shares of the seeds of those who answered, and of the keys of those who
did not, never both of one party.

Four things are not Flower's. Its curve is P-384, whose key agreements take most of the time of a
sum; here it is P-256, as strong as the ciphers that the keys are for. Shares are those of
`secagg.sharing`. Its masks come from a Mersenne Twister seeded with 32 bits, which can be tried one
after the other; here they are ChaCha20 output under the whole 256-bit key. And its quantisation
rounds at random and clips again; here whole numbers are added as they are (see
`secagg.distributed_noise`).

Claim: a server that colludes with fewer than `threshold` of a party's neighbours learns nothing but
the sum over all parties that answered, and no sum of fewer than the party's `at_least`. A party
unmasks one request for one set of parties only, so that two sums never differ by one party. What
the server proposes is checked: the threshold against what the party's plan counts on and against
half of its neighbours, the parties of a sum against those of the plan.
Assumption: the server follows the protocol. Keys pass through it; a server that replaces them by
its own is found only by parties that know each other's party keys (`secagg.certification`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    decrypt,
    encrypt,
    generate_shared_key,
)
from flwr.common.secure_aggregation.secaggplus_utils import (
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    private_key_to_bytes,
    public_key_to_bytes,
)

from fedsynth.core.messages import Arrays
from fedsynth.privacy.secagg.masking import (
    CURVE,
    KEY_BYTES,
    Keys,
    OutOfTurn,
    agreed_mask,
    flat,
    mask_of,
    unflat,
)
from fedsynth.privacy.secagg.server import least_threshold
from fedsynth.privacy.secagg.sharing import create_shares
from fedsynth.storage.files import OF_PARTY, atomic_write, disk_errors, read_or_create

__all__ = ["OutOfTurn", "SecAggClient"]

SEED_BYTES = 32
MAX_SESSION = 100  # characters


@dataclass
class _Memory:
    """A party's state between the stages of one sum; bytes as hexadecimal text."""

    session: str
    question: str
    threshold: int
    private: tuple[str, str]
    seed: str = ""
    sent: str = ""  # digest of the numbers that left under the masks
    public: dict[str, tuple[str, str]] = field(default_factory=dict)  # of the neighbours
    shares: dict[str, tuple[str, str]] = field(default_factory=dict)  # of their seeds and keys


class SecAggClient:
    """One party's side of one sum; its state between stages is in `folder`."""

    def __init__(self, folder: Path, party: int, session: str) -> None:
        self._folder, self._party, self._session = folder, party, session
        self._path = folder / "secure-sum.checkpoint"

    def setup(self, question: str, threshold: int, at_least: int) -> Keys:
        """New keys for a new session; the same again for one that has begun already.

        Args:
            question: The digest of the request whose answers are added up.
            threshold: The shares that reveal a secret, as the server proposes it.
            at_least: The fewest parties in a sum, by the party's own plan.

        Raises:
            OutOfTurn: So few shares would reveal a secret that a part of the parties could.
        """
        if not re.fullmatch("[0-9a-f]{64}", question) or len(self._session) > MAX_SESSION:
            raise OutOfTurn("a question is named by its digest, a session by a short text")
        least = least_threshold(at_least)
        if threshold < least:
            raise OutOfTurn(
                f"a threshold of {threshold} shares is too low: at least {least} for a sum of "
                f"{at_least} or more parties"
            )
        memory = None
        with contextlib.suppress(OutOfTurn):  # damaged: a new session begins
            memory = self._read()
        if memory is None or memory.session != self._session:
            pairs = [private_key_to_bytes(ec.generate_private_key(CURVE)).hex() for _ in range(2)]
            memory = _Memory(self._session, question, threshold, (pairs[0], pairs[1]))
            self._write(memory)
        if memory.question != question or memory.threshold != threshold:
            raise OutOfTurn("this session is about another question")
        return self._public(memory)

    def share_keys(self, public: Mapping[int, Keys], parties: Collection[int]) -> dict[int, bytes]:
        """Shares for every neighbour, encrypted.

        Args:
            public: The keys of the neighbours and of this party.
            parties: The parties of the stage, by the party's own plan.

        Raises:
            OutOfTurn: The keys are not those of this session or of parties of the stage, or half
                of the neighbours could reveal a secret: then one half could give this party's seed
                and the other its key.
        """
        memory = self._memory()
        if public.get(self._party) != self._public(memory):
            raise OutOfTurn("these are not this party's own keys")
        keys = [key for pair in public.values() for key in pair]
        if len(set(keys)) != len(keys) or len(public) < memory.threshold:
            raise OutOfTurn("too few neighbours, or two with the same key")
        if not set(public) <= set(parties):
            raise OutOfTurn("a neighbour is not a party of this stage")
        if 2 * memory.threshold <= len(public):
            raise OutOfTurn("the threshold is not more than half of the neighbours")
        known = {str(p): (a.hex(), b.hex()) for p, (a, b) in public.items()}
        if memory.public not in ({}, known):
            raise OutOfTurn("the keys of the neighbours were others before")
        for pair in public.values():
            _check_public(pair)
        memory.public, memory.seed = known, memory.seed or os.urandom(32).hex()
        first = _private(memory.private[0]).private_numbers().private_value
        seeds = create_shares(bytes.fromhex(memory.seed), memory.threshold, len(public))
        secret = first.to_bytes(KEY_BYTES, "big")
        firsts = create_shares(secret, memory.threshold, len(public))
        sealed: dict[int, bytes] = {}
        for party, seed, share in zip(public, seeds, firsts, strict=True):
            if party == self._party:
                memory.shares[str(party)] = (seed.hex(), share.hex())
            else:
                text = share_keys_plaintext_concat(self._party, party, seed, share)
                sealed[party] = encrypt(self._agreed(memory, 1, party), text)
        self._write(memory)
        return sealed

    def open_shares(self, question: str, sealed: Mapping[int, bytes]) -> None:
        """Store the shares of the neighbours, before this party's numbers are computed."""
        memory = self._memory()
        if memory.question != question or not memory.seed:
            raise OutOfTurn("this session is about another question, or keys were not shared")
        if len(sealed) + 1 < memory.threshold or str(self._party) in map(str, sealed):
            raise OutOfTurn("too few neighbours shared their keys")
        received = {str(self._party): memory.shares[str(self._party)]}
        for party, text in sealed.items():
            try:
                plain = decrypt(self._agreed(memory, 1, party), text)
            except (InvalidToken, KeyError) as error:
                raise OutOfTurn(f"the shares of party {party} cannot be opened") from error
            source, target, seed, share = share_keys_plaintext_separate(plain)
            if (source, target) != (party, self._party):
                raise OutOfTurn(f"the shares of party {party} are not from it or not for this one")
            received[str(party)] = (seed.hex(), share.hex())
        if len(memory.shares) > 1 and set(memory.shares) != set(received):
            raise OutOfTurn("the neighbours were others before")
        memory.shares = received
        self._write(memory)

    def mask(self, arrays: Arrays) -> dict[str, torch.Tensor]:
        """These whole numbers (int64) under all masks of this party.

        Raises:
            OutOfTurn: Other numbers left under the same masks, which would show their difference.
        """
        memory = self._memory()
        total = flat(arrays)
        digest = hashlib.sha256(total.tobytes()).hexdigest()
        if memory.sent not in ("", digest):
            raise OutOfTurn("other numbers left under these masks before")
        if not memory.sent:
            memory.sent = digest
            self._write(memory)
        total += mask_of(_secret(memory.seed), len(total))
        for text in memory.shares:
            party = int(text)
            if party != self._party:
                words = agreed_mask(self._agreed(memory, 0, party), len(total))
                total += words if self._party > party else np.uint64(0) - words
        return unflat(total, arrays)

    def unmask(
        self, answered: Sequence[int], at_least: int, parties: Collection[int]
    ) -> dict[int, tuple[bool, bytes]]:
        """Shares for taking the masks off the sum of those who `answered`: of the seed of a
        neighbour among them (True), of the first key of another one (False).

        Args:
            answered: The parties in the sum, as the server states them.
            at_least: The fewest parties in a sum, by the party's own plan.
            parties: The parties of the stage, by the party's own plan.

        Raises:
            OutOfTurn: The sum is too small, or over other parties than before.
        """
        memory = self._memory()
        if len(memory.shares) < 2 or self._party not in answered:
            raise OutOfTurn("this party's numbers are not in the sum")
        if not set(answered) <= set(parties):
            raise OutOfTurn("the sum is said to hold parties that are not in this stage")
        if len(set(answered)) < max(at_least, 2):
            raise OutOfTurn(
                f"a sum of {len(set(answered))} parties is not unmasked: its noise is made of at "
                f"least {at_least} shares"
            )
        self._pin(memory.question, sorted(set(answered)))
        given = {}
        for text, (seed, key) in memory.shares.items():
            there = int(text) in answered
            given[int(text)] = (there, bytes.fromhex(seed if there else key))
        return given

    def _pin(self, question: str, answered: list[int]) -> None:
        """Bind this request to this set of parties, on disk, before anything is unmasked.

        Two processes that are asked at the same time find the set of the first one."""
        path, own = self._folder / f"summed-{question[:32]}.checkpoint", json.dumps(answered)
        with disk_errors(path, OF_PARTY):
            bound = read_or_create(path, lambda new: atomic_write(new, own.encode()))
        if bound != own.encode():
            raise OutOfTurn("this question was answered in a sum over other parties before")

    def _agreed(self, memory: _Memory, which: int, party: int) -> bytes:
        try:
            return _shared_key(memory.private[which], memory.public[str(party)][which])
        except (ValueError, TypeError, AttributeError, UnsupportedAlgorithm) as error:
            raise OutOfTurn("what this party kept of the sum is damaged: begin it again") from error

    @staticmethod
    def _public(memory: _Memory) -> Keys:
        first, second = (public_key_to_bytes(_private(k).public_key()) for k in memory.private)
        return first, second

    def _memory(self) -> _Memory:
        memory = self._read()
        if memory is None or memory.session != self._session:
            raise OutOfTurn("this session has not begun, or another one has begun since")
        return memory

    def _read(self) -> _Memory | None:
        if not self._path.exists():
            return None
        try:
            fields = json.loads(self._path.read_bytes())
            fields["private"] = tuple(fields["private"])
            fields["public"] = {k: tuple(v) for k, v in fields["public"].items()}
            fields["shares"] = {k: tuple(v) for k, v in fields["shares"].items()}
            return _Memory(**fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise OutOfTurn("what this party kept of the sum is damaged: begin it again") from error

    def _write(self, memory: _Memory) -> None:
        with disk_errors(self._path, OF_PARTY):
            self._folder.mkdir(parents=True, exist_ok=True)
            atomic_write(self._path, json.dumps(asdict(memory)).encode())


def _check_public(pair: Keys) -> None:
    """Refuse bytes that are no public key of the curve."""
    for key in pair:
        try:
            curve = bytes_to_public_key(key).curve
        except (ValueError, TypeError, AttributeError, UnsupportedAlgorithm) as error:
            raise OutOfTurn("a neighbour's key cannot be read") from error
        if not isinstance(curve, type(CURVE)):
            raise OutOfTurn("a neighbour's key is of another curve")


def _secret(text: str) -> bytes:
    """The seed of a mask, 32 bytes."""
    with contextlib.suppress(ValueError):
        seed = bytes.fromhex(text)
        if len(seed) == SEED_BYTES:
            return seed
    raise OutOfTurn("what this party kept of the sum is damaged: begin it again")


@functools.lru_cache(maxsize=8192)
def _shared_key(private: str, public: str) -> bytes:
    """The key that two parties agree on; the same in two stages, and slow to compute."""
    return generate_shared_key(_private(private), bytes_to_public_key(bytes.fromhex(public)))


@functools.lru_cache(maxsize=512)
def _private(text: str) -> ec.EllipticCurvePrivateKey:
    try:
        return bytes_to_private_key(bytes.fromhex(text))
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise OutOfTurn("what this party kept of the sum is damaged: begin it again") from error
