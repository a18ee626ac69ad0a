"""Votes of teachers: each record belongs to one teacher, each teacher has one ballot an image."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fedsynth.privacy.accounting.events import gaussian
from fedsynth.privacy.charging import Charger
from fedsynth.privacy.count_sketch import CountSketch
from fedsynth.privacy.party_data import Sealed, open_for_guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedsynth.privacy.noise import NoiseStream


@dataclass(frozen=True)
class VoteBounds:
    """What a ballot may hold: at most `entries` whole numbers from `low` to `high` that are not
    zero, of `width` in all."""

    width: int
    entries: int
    low: int = -1
    high: int = 1

    @property
    def signs(self) -> bool:
        """Whether ballots hold signs only."""
        return (self.low, self.high) == (-1, 1)

    def sensitivity(self, images: int, sketch: CountSketch | None = None) -> float:
        """How far one teacher's other ballots for `images` images move their sum, in L2, at most.

        A teacher that loses its last record abstains; that is no further than the opposite of
        every vote: 2 sqrt(entries) for signs, (high - low) sqrt(entries) for more levels that span
        zero. Sums that go through a sketch move by no more than two tables are long."""
        if not (self.low <= 0 <= self.high and 0 < self.entries <= self.width):
            raise ValueError(f"{self} allows no ballot that could be bounded")
        if sketch is None:
            # Sparse ballots on disjoint places differ in twice as many entries, each by half.
            apart = max(abs(self.low), self.high) * math.sqrt(2 * self.entries)
            most = max((self.high - self.low) * math.sqrt(self.entries), apart)
            if self.entries == self.width:
                most = (self.high - self.low) * math.sqrt(self.width)
        else:
            most = 2 * max(abs(self.low), self.high) * sketch.reach(self.entries)
        return most * math.sqrt(images)

    def valid(self, ballots: torch.Tensor) -> torch.Tensor:
        """Which of the ballots [..., width] keep the rule, [..., 1]."""
        few = (ballots != 0).sum(-1, keepdim=True) <= self.entries
        lowest, highest = torch.aminmax(ballots, dim=-1, keepdim=True)
        return few & (lowest >= self.low) & (highest <= self.high)


@dataclass(frozen=True)
class VoteCounts:
    """Counted ballots: one sum an image. Only `count` and a party's own disk make one."""

    rule: VoteBounds
    sums: torch.Tensor  # int32 [images, width]

    @staticmethod
    def count(rule: VoteBounds, images: int, stacks: Iterable[torch.Tensor]) -> VoteCounts:
        """Add up ballots that come in stacks [teachers, images, width] of small integers. A ballot
        that breaks the rule is not counted, whatever it says."""
        sums = torch.zeros(images, rule.width, dtype=torch.int32)
        for stack in stacks:
            if stack.shape[1:] != sums.shape or stack.is_floating_point():
                raise ValueError(f"ballots of the form {tuple(stack.shape)} are not {sums.shape}")
            sums += (stack * rule.valid(stack)).sum(0, dtype=torch.int32).cpu()
        return VoteCounts(rule, sums)

    @staticmethod
    def total(tallies: Iterable[VoteCounts]) -> VoteCounts:
        """What several counts of different teachers come to; at least one."""
        first, *others = tallies
        if any(other.rule != first.rule for other in others):
            raise ValueError("ballots under different rules cannot be added up")
        return VoteCounts(
            first.rule, torch.stack([first.sums, *(t.sums for t in others)]).sum(0).int()
        )


class VoteMechanisms(Charger):
    """The mechanism for counted votes."""

    if TYPE_CHECKING:  # of the guard

        def _view(self, at: str) -> str: ...

        def _noised(
            self, at: str, sums: Sequence[torch.Tensor], bound: float, noise_multiplier: float,
            streams: Callable[..., NoiseStream],
        ) -> list[torch.Tensor]: ...  # fmt: skip

    def noisy_votes(
        self,
        tally: Sealed[VoteCounts],
        *,
        noise_multiplier: float,
        sketch: CountSketch | None = None,
        call: int = 0,
        at: str = "party",
    ) -> torch.Tensor:
        """The vote sums of all images of one round, or their sketch, plus Gaussian noise.

        Unit: one record, added, removed or exchanged for another one of the same teacher. Every
        record must belong to exactly one teacher by a rule that looks at this record alone (a hash
        of it, say), and a teacher's ballots must be a function of its own records and of public
        things. Then one record changes the ballots of one teacher, and with them the sums of all
        images together by at most `rule.sensitivity(images)` in L2;
        `VoteCounts.count` leaves out what breaks the rule. The noise has `noise_multiplier` times
        that as its deviation: it is one Gaussian mechanism per round, the composition of one per
        image. `at`: as for
        `noisy_gradient`; the plain sums are whole numbers."""
        streams = self._pay(gaussian(noise_multiplier), call, self._view(at))
        counted = open_for_guard(tally)
        sums = counted.sums.float()
        bound = counted.rule.sensitivity(len(sums), sketch)
        if sketch is not None:
            sums = sketch.table(sums)
        return self._noised(at, [sums], bound, noise_multiplier, streams)[0]
