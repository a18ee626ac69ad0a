"""The public schedule of GS-WGAN: the subsets that parties host, and the rounds of each subset.

A party's records are divided into subsets (a single one: the party itself, as in a federation of
users). In every round a few subsets have a turn; which ones is fixed before any data are read, so
the number of turns of a subset is public and can be accounted for. No secrecy of the choice is
claimed.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from dp_accounting import DpEvent

from fedsynth.core.enums import Relation, Unit
from fedsynth.core.errors import UserError
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Stage
from fedsynth.privacy.accounting.events import composed, gaussian_in_ball, repeated
from fedsynth.privacy.subsets import Subset


class TurnOrder(StrEnum):
    """The public order in which subsets have their turns."""

    ROUND_ROBIN = "round_robin"
    RANDOM = "random"


@dataclass(frozen=True)
class SubsetTurn:
    """One turn of one subset."""

    slot: int  # position in the round
    party: int
    subset: Subset
    number: int  # of earlier turns of this subset


@dataclass(frozen=True)
class ParticipationSchedule:
    """All turns of one stage, round by round."""

    subsets: dict[int, int]  # number of subsets per party
    rounds: tuple[tuple[SubsetTurn, ...], ...]

    @property
    def total_subsets(self) -> int:
        """The number of subsets over all parties."""
        return sum(self.subsets.values())

    @functools.cached_property
    def turns(self) -> dict[int, Counter[Subset]]:
        """The number of turns of each subset, per party."""
        counts: dict[int, Counter[Subset]] = {party: Counter() for party in self.subsets}
        for turns in self.rounds:
            for turn in turns:
                counts[turn.party][turn.subset] += 1
        return counts

    def first(self, rounds: int) -> ParticipationSchedule:
        """The schedule of the first rounds alone."""
        return replace(self, rounds=self.rounds[:rounds])

    def turns_in_round(self, number: int, party: int) -> list[SubsetTurn]:
        """The turns of this party in a round."""
        return [turn for turn in self.rounds[number] if turn.party == party]

    def event(self, party: int, noise_multiplier: float, unit: Unit) -> DpEvent:
        """The privacy cost of a party's turns, each of them one Gaussian mechanism."""
        return composed(
            [
                repeated(subset.event(gaussian_in_ball(noise_multiplier), unit), times)
                for subset, times in sorted(self.turns[party].items(), key=lambda i: i[0].index)
            ]
        )

    def most_turns(self, unit: Unit, relation: str = Relation.ADD_REMOVE) -> int:
        """The largest number of turns that touch one unit: a subset's, or a whole party's.

        A record that is replaced by one of another subset touches the turns of both."""
        found = []
        for counts in self.turns.values():
            turns = sorted(counts.values(), reverse=True)
            touched = 2 if relation == Relation.REPLACE_ONE else 1
            found.append(sum(turns if unit == Unit.USER else turns[:touched]))
        return max(found)


def make_schedule(
    stage: Stage, name: str, *, subsets: int, rounds: int, per_round: int, order: str
) -> ParticipationSchedule:
    """Compute the schedule of a stage from public facts.

    Raises:
        UserError: There are fewer subsets than turns per round.
    """
    return _schedule(
        tuple((info.party, info.records) for info in stage.parties),
        f"{name} stage {stage.index}",
        subsets=subsets,
        rounds=rounds,
        per_round=per_round,
        order=order,
    )


@functools.lru_cache(maxsize=16)
def _schedule(
    parties: tuple[tuple[int, int], ...],
    name: str,
    *,
    subsets: int,
    rounds: int,
    per_round: int,
    order: str,
) -> ParticipationSchedule:
    hosted = subsets_per_party(parties, subsets)
    candidates = [  # all first subsets, then all second ones: neighbours are different parties
        (party, Subset(f"{name} party {party}", index, count))
        for index in range(max(hosted.values()))
        for party, count in hosted.items()
        if index < count
    ]
    if per_round > len(candidates):
        raise UserError(
            f"per_round={per_round}: the parties of a stage have {len(candidates)} subsets. "
            f"Allowed: 1 to {len(candidates)}."
        )
    generator = torch_generator(name, "visits", subsets, rounds, per_round)
    turns_so_far: Counter[tuple[int, Subset]] = Counter()
    all_rounds = []
    for number in range(rounds):
        if order == TurnOrder.ROUND_ROBIN:
            chosen = [(number * per_round + i) % len(candidates) for i in range(per_round)]
        elif per_round == 1:
            chosen = torch.randint(len(candidates), (1,), generator=generator).tolist()
        else:
            chosen = torch.randperm(len(candidates), generator=generator)[:per_round].tolist()
        turns = []
        for slot, index in enumerate(chosen):
            party, subset = candidates[index]
            turns.append(SubsetTurn(slot, party, subset, turns_so_far[candidates[index]]))
            turns_so_far[candidates[index]] += 1
        all_rounds.append(tuple(turns))
    return ParticipationSchedule(hosted, tuple(all_rounds))


def subsets_per_party(parties: tuple[tuple[int, int], ...], subsets: int) -> dict[int, int]:
    """The subsets of each (party, records): shared by public numbers of records, at least one."""
    total = max(1, sum(records for _, records in parties))
    return {party: max(1, round(subsets * records / total)) for party, records in parties}
