"""Who is visited when: the subsets that parties host, and the public schedule of visits to them.

A party's records are cut into subsets (one subset: the party itself, as in a federation of users).
In every round a few subsets are visited; which ones is fixed before any data is read, so a subset's
visits are a number that everybody can count. Nothing is claimed for the secrecy of the choice.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import torch_generator
from fedsynth.core.types import Stage
from fedsynth.privacy.accounting.events import composed, gaussian, repeated
from fedsynth.privacy.subsets import Subset

ROUND_ROBIN, RANDOM = "round_robin", "random"
ORDERS = (ROUND_ROBIN, RANDOM)


@dataclass(frozen=True)
class SubsetTurn:
    """One visit to a subset: its place in the round, whose subset, and which visit to it."""

    slot: int
    party: int
    part: Subset
    number: int  # of earlier visits to this subset


@dataclass(frozen=True)
class ParticipationSchedule:
    """All visits of one stage, round by round."""

    subsets: dict[int, int]  # by party
    rounds: tuple[tuple[SubsetTurn, ...], ...]

    @property
    def total(self) -> int:
        """Subsets over all parties."""
        return sum(self.subsets.values())

    @functools.cached_property
    def visits(self) -> dict[int, Counter[Subset]]:
        """How often each subset of each party is visited."""
        found: dict[int, Counter[Subset]] = {party: Counter() for party in self.subsets}
        for visits in self.rounds:
            for visit in visits:
                found[visit.party][visit.part] += 1
        return found

    def at(self, number: int, party: int) -> list[SubsetTurn]:
        """This party's visits in a round."""
        return [visit for visit in self.rounds[number] if visit.party == party]

    def event(self, party: int, noise_multiplier: float, unit: str) -> DpEvent:
        """Everything that one party spends, if a visit is one Gaussian mechanism."""
        return composed(
            [
                repeated(part.event(gaussian(noise_multiplier), unit), times)
                for part, times in sorted(self.visits[party].items(), key=lambda i: i[0].index)
            ]
        )

    def worst(self, unit: str) -> int:
        """The most visits to anything that is protected: to a subset, or to a whole party."""
        per_party = [
            (sum if unit == "user" else max)(counts.values())
            for counts in self.visits.values()
            if counts
        ]
        return max(per_party)


def make_schedule(
    stage: Stage, name: str, *, subsets: int, rounds: int, per_round: int, order: str
) -> ParticipationSchedule:
    """The schedule of a stage: a function of public facts alone."""
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
    shares = hosted(parties, subsets)
    parts = [  # all first subsets, then all second ones, ...: neighbours are different parties
        (party, Subset(f"{name} party {party}", index, count))
        for index in range(max(shares.values()))
        for party, count in shares.items()
        if index < count
    ]
    if per_round > len(parts):
        raise UserError(
            f"per_round={per_round}: there are {len(parts)} subsets over all parties of a stage. "
            f"Allowed: 1 to {len(parts)}."
        )
    generator = torch_generator(name, "visits", subsets, rounds, per_round)
    seen: Counter[tuple[int, Subset]] = Counter()
    made = []
    for number in range(rounds):
        if order == ROUND_ROBIN:
            chosen = [(number * per_round + i) % len(parts) for i in range(per_round)]
        elif per_round == 1:
            chosen = torch.randint(len(parts), (1,), generator=generator).tolist()
        else:
            chosen = torch.randperm(len(parts), generator=generator)[:per_round].tolist()
        visits = []
        for slot, place in enumerate(chosen):
            party, part = parts[place]
            visits.append(SubsetTurn(slot, party, part, seen[parts[place]]))
            seen[parts[place]] += 1
        made.append(tuple(visits))
    return ParticipationSchedule(shares, tuple(made))


def hosted(parties: tuple[tuple[int, int], ...], subsets: int) -> dict[int, int]:
    """How many subsets each party hosts: its share by public numbers of records, at least one."""
    records = max(1, sum(count for _, count in parties))
    return {party: max(1, round(subsets * count / records)) for party, count in parties}
