"""The public schedule of GS-WGAN's turns."""

from __future__ import annotations

import pytest

from fedsynth.core.enums import Unit
from fedsynth.core.errors import UserError
from fedsynth.core.types import DatasetInfo, PartyInfo, Stage
from fedsynth.methods.gs_wgan.schedule import TurnOrder, make_schedule, subsets_per_party

DATA = DatasetInfo("tiny", (1, 8, 8), 3, (0.5,), (0.25,))


def schedule_of(records: tuple[int, ...] = (30, 10), **changes):
    parties = tuple(PartyInfo(p, n, {0: n}) for p, n in enumerate(records))
    settings = {"subsets": 4, "rounds": 10, "per_round": 2, "order": "round_robin", **changes}
    return make_schedule(Stage(DATA, 0, 1, parties, (0,), (0,)), "name", **settings)


def test_parties_host_subsets_by_records_and_at_least_one():
    assert subsets_per_party(((0, 300), (1, 100), (2, 1)), 4) == {0: 3, 1: 1, 2: 1}


@pytest.mark.parametrize("order", TurnOrder)
def test_every_round_has_different_subsets_and_turns_are_numbered(order):
    schedule = schedule_of(order=order)
    assert schedule.total_subsets == 4
    so_far = {}
    for turns in schedule.rounds:
        assert len({(turn.party, turn.subset) for turn in turns}) == 2
        assert [turn.slot for turn in turns] == [0, 1]
        for turn in turns:
            assert turn.number == so_far.get((turn.party, turn.subset), 0)
            so_far[turn.party, turn.subset] = turn.number + 1
    assert {(p, s): n for p, c in schedule.turns.items() for s, n in c.items()} == so_far
    assert schedule.turns_in_round(3, 1) == [t for t in schedule.rounds[3] if t.party == 1]


def test_round_robin_gives_every_subset_as_many_turns():
    schedule = schedule_of()
    assert schedule.most_turns(Unit.RECORD) == 5
    assert schedule.most_turns(Unit.USER) == 15  # of the three subsets of party 0


def test_the_first_rounds_are_those_of_the_whole_schedule():
    schedule = schedule_of()
    first = schedule.first(3)
    assert first.rounds == schedule.rounds[:3]
    assert sum(n for counts in first.turns.values() for n in counts.values()) == 3 * 2
    assert first.most_turns(Unit.RECORD) == 2  # six turns of four subsets
    assert first.subsets == schedule.subsets


def test_more_turns_than_subsets_are_refused():
    with pytest.raises(UserError, match=r"per_round=5: .* 4 subsets\. Allowed: 1 to 4"):
        schedule_of(per_round=5)
