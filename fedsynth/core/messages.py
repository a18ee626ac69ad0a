"""Messages between the server and the parties: requests, releases and sums of releases."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from fedsynth.core.errors import Refusal, Refused
from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.tensor_bytes import tensor_bytes

Scalar = int | float | str | bool
Scalars = Mapping[str, Scalar]  # by name
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

    def scalar(self, name: str) -> Scalar:
        """The public value of this name.

        Raises:
            Refused: The request names none.
        """
        if name not in self.scalars:
            raise self.refused(f"names no {name}.")
        return self.scalars[name]

    def array(
        self, name: str, shape: Sequence[int], dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """The array of this name, which has this shape and type and finite values.

        A party calls this before it looks at a record, so that a request that no record fits is
        refused whatever the records are.

        Raises:
            Refused: The array is missing or has another form.
        """
        value = self.arrays.get(name)
        wanted = f"needs the array {name!r} of the shape {tuple(shape)} and the type {dtype}"
        if value is None:
            raise self.refused(f"{wanted}.")
        if tuple(value.shape) != tuple(shape) or value.dtype != dtype:
            raise self.refused(f"{wanted}, not {tuple(value.shape)} and {value.dtype}.")
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise self.refused(f"{wanted}, with finite values.")
        return value

    def exact_arrays(self, like: Arrays) -> Arrays:
        """All arrays, which have the names, shapes and types of `like` and no others.

        Raises:
            Refused: An array is missing, has another form, or is not one of these.
        """
        if unknown := sorted(set(self.arrays) - set(like)):
            raise self.refused(f"has the array {unknown[0]!r}, which nothing needs.")
        return {name: self.array(name, value.shape, value.dtype) for name, value in like.items()}

    def refused(self, text: str) -> Refused:
        """The refusal of this request, for this reason."""
        return Refused(Refusal.REQUEST, f"the request {self.kind[:40]!r} {text}")


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
        sha.update(tensor_bytes(raw))
    return sha.hexdigest()
