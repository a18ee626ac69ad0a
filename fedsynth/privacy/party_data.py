"""A party's records, sealed: local code computes on them, and only the guard releases anything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from fedsynth.core.types import PartyInfo
from fedsynth.data.records import Records
from fedsynth.privacy.private_cache import PrivateCache
from fedsynth.storage.checkpoint import rounds

T = TypeVar("T")
U = TypeVar("U")


class Sealed(Generic[T]):
    """A value computed from private records.

    Claim: it can be mapped into another sealed value, and neither printed nor pickled.
    Assumption: only `privacy.guard` imports `open_for_guard`; this is a convention that a test on
    the sources enforces, not a protection against hostile code.
    """

    def __init__(self, value: T, origin: object = None) -> None:
        self._value = value
        self._origin = value if origin is None else origin

    def map(self, function: Callable[[T], U]) -> Sealed[U]:
        """Apply any local computation; the result stays sealed."""
        return Sealed(function(self._value), self._origin)

    def zip(self, other: Sealed[U]) -> Sealed[tuple[T, U]]:
        """Both values as a pair, sealed.

        Raises:
            ValueError: They were mapped from different values.
        """
        if other._origin is not self._origin:
            raise ValueError("values that were not computed from the same records")
        return Sealed((self._value, other._value), self._origin)

    def __repr__(self) -> str:
        return "Sealed(...)"

    def __reduce__(self) -> Any:
        raise TypeError("a sealed value does not leave its party: it cannot be pickled")


def open_for_guard(sealed: Sealed[T]) -> T:
    """Open a sealed value. Only `privacy.guard` may; a test on the sources enforces it."""
    return sealed._value


class PartyData:
    """One party's records in one stage, with their public facts and a private working directory.

    Records of a class that the party did not declare are ignored, by a rule that looks at each
    record alone, so neighbouring data sets stay neighbours. Without it such a record would make
    methods fail that compute with the declared classes only, and the failure would disclose it.
    """

    def __init__(
        self,
        records: Records,
        info: PartyInfo,
        *,
        work_dir: Path,
        fingerprint: str,
        classes: Collection[int] | None = None,
        on_step: Callable[[int, int], None] | None = None,
        private_cache: PrivateCache | None = None,
    ) -> None:
        """`classes` are the declared ones; without them, those of `info`."""
        declared = info.class_counts if classes is None else classes
        self.records = Sealed(_of_classes(records, sorted(declared)))
        self.info = info
        self._work_dir = work_dir
        self._fingerprint = fingerprint
        self._on_step = on_step
        self.private_cache = private_cache  # outlives the run; None if the party keeps nothing

    def remember(self, key: str, compute: Callable[[Records], T]) -> Sealed[T]:
        """`records.map(compute)`, cached in this process for the next request.

        `key` must name all inputs of `compute` other than the records; the latest keys are kept."""
        return self.records.map(lambda records: records.remember(key, compute))

    def file(self, name: str) -> Path:
        """A path in the working directory, for state of this stage between requests."""
        self._work_dir.mkdir(parents=True, exist_ok=True)
        return self._work_dir / name

    def rounds(self, n: int, state: dict[str, Any], name: str = "party") -> Iterator[int]:
        """Yield 0..n-1 of a long local computation with checkpoints of `state` in the working
        directory; after a crash, continue from the last one."""
        path = self._work_dir / f"{name}.checkpoint"
        yield from rounds(n, state, path, fingerprint=self._fingerprint, on_step=self._on_step)


def _of_classes(records: Records, classes: list[int]) -> Records:
    """The records of these classes; the same object if they are all."""
    kept = torch.isin(records.labels, torch.tensor(classes, dtype=torch.int64))
    if bool(kept.all()):
        return records

    def chosen(every: Records) -> Records:
        return Records(every.images[kept], every.labels[kept])

    return records.remember(f"records of classes {classes}", chosen)
