"""A party's own records, wrapped: they can be computed on at home and leave only by the guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from fedsynth.core import PartyFacts
from fedsynth.engine.checkpoint import rounds

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Records:
    """Raw records: pixels as stored, and their class names."""

    images: torch.Tensor  # uint8 [n, c, h, w]
    labels: torch.Tensor  # int64 [n]

    def pixels(self, indices: torch.Tensor | None = None) -> torch.Tensor:
        """The images of these records as float32 in [0, 1]."""
        chosen = self.images if indices is None else self.images[indices]
        return chosen.float().div_(255)


class Sealed(Generic[T]):
    """A value computed from private records. It can be mapped into another sealed value; only the
    guard opens it. Printing it shows nothing."""

    def __init__(self, value: T) -> None:
        self._value = value

    def map(self, function: Callable[[T], U]) -> Sealed[U]:
        """Apply any local computation; the result stays sealed."""
        return Sealed(function(self._value))

    def __repr__(self) -> str:
        return "Sealed(...)"

    def __reduce__(self) -> Any:
        raise TypeError("a sealed value does not leave its party: it cannot be pickled")


def open_for_guard(sealed: Sealed[T]) -> T:
    """Open a sealed value. Only `privacy.guard` may; a test reads the sources."""
    return sealed._value


class Private:
    """One party's partition in one stage, with what is public about it and its private workshop."""

    def __init__(
        self,
        records: Records,
        facts: PartyFacts,
        *,
        workshop: Path,
        fingerprint: str,
        on_step: Callable[[int, int], None] | None = None,
    ) -> None:
        self.records = Sealed(records)
        self.facts = facts
        self._workshop = workshop
        self._fingerprint = fingerprint
        self._on_step = on_step

    def rounds(self, n: int, state: dict[str, Any], name: str = "party") -> Iterator[int]:
        """Yield 0..n-1 of a long local computation, saving `state` at home now and then; after a
        crash, go on from what was saved."""
        path = self._workshop / f"{name}.checkpoint"
        yield from rounds(n, state, path, fingerprint=self._fingerprint, on_step=self._on_step)
