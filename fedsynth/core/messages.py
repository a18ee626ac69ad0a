"""Messages between the server and the parties: requests, releases and sums of releases."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from fedsynth.core.outcomes import SyntheticSet

Scalars = Mapping[str, int | float | str | bool]  # by name
Arrays = Mapping[str, torch.Tensor]  # by name
Shapes = Mapping[str, Sequence[int]]  # of arrays, by name


@dataclass(frozen=True)
class Request:
    """A request of the server to a party: a kind, a round number and public values."""

    kind: str = "release"
    round: int = 0
    arrays: Arrays = field(default_factory=dict)
    scalars: Scalars = field(default_factory=dict)

    def digest(self) -> str:
        """SHA-256 over all content: equal requests have equal digests."""
        return _content_hash((self.kind, self.round), self.scalars, self.arrays)


@dataclass(frozen=True)
class Release:
    """The only object that leaves a party.

    `Guard.release` makes it and adds the ledger entries that paid for it; the ClientApp sends
    nothing else."""

    party: int
    arrays: Arrays
    entries: tuple[str, ...]  # hashes of the ledger entries behind these arrays
    scalars: Scalars = field(default_factory=dict)
    only_in_sum: bool = False  # holds one share of the noise: must not be revealed by itself

    def payload_hash(self) -> str:
        """SHA-256 of what a receiver learns: arrays by name, type, shape and bytes, and scalars."""
        return _content_hash(("payload",), self.scalars, self.arrays)

    def synthetic_set(self) -> SyntheticSet:
        """The synthetic set that this release consists of.

        Raises:
            ValueError: The release holds something else.
        """
        return SyntheticSet.from_arrays(self.arrays)


@dataclass(frozen=True)
class AggregatedSum:
    """The sum of the parties' releases; with a secure sum, all that the server learns of them."""

    arrays: Arrays
    parties: tuple[int, ...]  # the parties in the sum


def _content_hash(kind: tuple[object, ...], scalars: Scalars, arrays: Arrays) -> str:
    sha = hashlib.sha256(repr((*kind, sorted(scalars.items()))).encode())
    for name, value in sorted(arrays.items()):
        raw = value.detach().cpu().contiguous()
        sha.update(repr((name, str(raw.dtype), tuple(raw.shape))).encode())
        sha.update(raw.reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()
