"""Sums of outer products, group by group: second moments of many groups at the price of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.charging import Charger
from fedsynth.privacy.noise import NoiseStream
from fedsynth.privacy.outer_products import clipped_outer_sum
from fedsynth.privacy.party_data import PartyData, Sealed, open_for_guard

Rows = tuple[torch.Tensor, torch.Tensor]


class OuterSumMechanisms(Charger):
    """The mechanism for matrices that records of one group add up to."""

    if TYPE_CHECKING:  # of the guard

        def _view(self, at: str) -> str: ...

        def _noised(
            self, at: str, sums: Sequence[torch.Tensor], bound: float, multiplier: float,
            streams: Callable[..., NoiseStream],
        ) -> list[torch.Tensor]: ...  # fmt: skip

    def noisy_second_moments(
        self,
        private: PartyData,
        rows: Sealed[Rows],
        *,
        groups: int,
        bound: float,
        noise_multiplier: float,
        call: int = 0,
        at: str = "party",
    ) -> torch.Tensor:
        """For each group, the sum of row_i (outer) row_i over its records plus
        N(0, (noise_multiplier bound)^2) in every entry: [groups, width, width].

        `rows`, mapped from `private.records`, holds a row a record [n, width] and the number of its
        group [n], each a function of its own record alone; a record whose number lies outside
        0..groups-1 is in none. A record's matrix is clipped to `bound` in L2 and enters one group,
        so one record moves all of them together by at most `bound`. The noise is not symmetric:
        averaging a matrix with its transpose halves its variance off the diagonal, and is
        post-processing. `at`: as for `noisy_gradient`."""
        streams = self._pay(gaussian(noise_multiplier), call, self._view(at))
        values, numbers = open_for_guard(rows)
        if not len(values) == len(numbers) == len(open_for_guard(private.records).labels):
            raise ValueError("second moments need exactly one row and one group a record")
        sums = torch.stack(
            [
                clipped_outer_sum(values[mine], values[mine], bound)
                for mine in ((numbers == group).nonzero().flatten() for group in range(groups))
            ]
        )
        return self._noised(at, [sums], bound, noise_multiplier, streams)[0]
