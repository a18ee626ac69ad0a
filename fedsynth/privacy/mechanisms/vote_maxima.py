"""The largest of each group of votes: what a confident aggregator looks at before it answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.charging import CURATOR, Charger
from fedsynth.privacy.mechanisms.votes import VoteCounts
from fedsynth.privacy.noise import NoiseStream
from fedsynth.privacy.party_data import Sealed, open_for_guard


class VoteMaximumMechanisms(Charger):
    """The mechanism for maxima of votes."""

    if TYPE_CHECKING:  # of the guard

        def _noised(
            self, at: str, sums: Sequence[torch.Tensor], bound: float, noise_multiplier: float,
            streams: Callable[..., NoiseStream],
        ) -> list[torch.Tensor]: ...  # fmt: skip

    def noisy_maxima(
        self, tally: Sealed[VoteCounts], *, groups: int, noise_multiplier: float, call: int = 0
    ) -> torch.Tensor:
        """For every image, the largest sum in each of `groups` equal groups of its votes, plus
        Gaussian noise: [images, groups].

        Unit and teachers as for `noisy_votes`. One teacher's other ballots move each sum by at most
        the span of one entry, high - low, so each maximum by no more, and all maxima together by at
        most (high - low) sqrt(images groups) in L2. The noise has `noise_multiplier` times that as
        its deviation; all maxima of a round are one Gaussian mechanism."""
        streams = self._pay(gaussian(noise_multiplier), call, CURATOR)
        counted = open_for_guard(tally)
        rule = counted.rule
        most = counted.sums.float().unflatten(1, (groups, -1)).amax(2)
        bound = (rule.high - rule.low) * math.sqrt(most.numel())
        return self._noised("party", [most], bound, noise_multiplier, streams)[0]
