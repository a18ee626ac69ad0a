"""Intermediate sets: what a method would have released after fewer of its private steps.

Claim: they cost no privacy of their own. What they are computed from is the state that the noised
values of the steps so far lead to; these values are charged already, and the server has them
anyway. The epsilon of such a set is that of the steps before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fedsynth.core.settings import setting


def intermediate_setting(shares_of: str) -> Any:
    """The setting `intermediate` of a method; `shares_of` names what is divided: runs or steps."""
    return setting(
        0,
        f"sets released on the way beside the last one, after equal shares of the {shares_of} "
        "(post-processing: they cost no privacy)",
        at_least=0,
        at_most=100,
    )


def kept_after(total: int, sets: int) -> tuple[int, ...]:
    """The moments, of `total`, after which intermediate sets are kept: equal shares of the whole.

    There are fewer than `sets` if there are not so many moments before the last.

    >>> kept_after(20000, 3), kept_after(3, 5)
    ((5000, 10000, 15000), (1, 2))
    """
    shares = sets + 1
    return tuple(sorted({total * share // shares for share in range(1, shares)} - {0}))


class KeptValues:
    """The values that intermediate sets are made of, one tensor per moment, for a checkpoint."""

    def __init__(self, moments: Sequence[int], example: Tensor) -> None:
        """`example` has the shape of each value."""
        self.moments = tuple(moments)
        self._values = torch.zeros(len(self.moments), *example.shape)

    @property
    def state(self) -> dict[str, Tensor]:
        """The part of a checkpoint; restored in place. Empty without moments."""
        return {"kept": self._values} if self.moments else {}

    def due(self, done: int) -> bool:
        """True if a value is kept after so many steps."""
        return done in self.moments

    def keep(self, done: int, value: Tensor) -> None:
        """Keep this value as that after so many steps, which are `due`."""
        self._values[self.moments.index(done)].copy_(value.detach())

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """The moments with their values, in order."""
        return iter(zip(self.moments, self._values, strict=True))
