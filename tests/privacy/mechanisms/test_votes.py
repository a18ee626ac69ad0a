"""The vote mechanism: what ballots may hold, how far one teacher reaches, what it costs."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from guarded import guard
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.enums import NoisePlacement, Relation, Unit
from fedsynth.core.errors import UserError
from fedsynth.core.plan import PUBLIC_VIEW
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import from_json, gaussian, gaussian_of_exchange, to_json
from fedsynth.privacy.accounting.gdp import gdp_epsilon
from fedsynth.privacy.count_sketch import CountSketch
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.ledger import BudgetExceeded, read_entries
from fedsynth.privacy.mechanisms.votes import (
    Assignment,
    VoteBounds,
    VoteCounts,
    VoteMaxima,
    VoteSums,
)
from fedsynth.privacy.party_data import Sealed

SIGNS = VoteBounds(10, 3)


def every_ballot(rule: VoteBounds) -> torch.Tensor:
    """All ballots that keep a small rule."""
    levels = range(rule.low, rule.high + 1)
    rows = [
        row
        for row in itertools.product(levels, repeat=rule.width)
        if sum(value != 0 for value in row) <= rule.entries
    ]
    return torch.tensor(rows, dtype=torch.int8)


@pytest.mark.parametrize(
    ("rule", "known"),
    [
        (VoteBounds(5, 2), 2 * math.sqrt(2)),
        (VoteBounds(4, 4), 2 * math.sqrt(4)),
        (VoteBounds(4, 4, -2, 1), 3 * math.sqrt(4)),  # d2p with four levels
        (VoteBounds(3, 3, 0, 1), math.sqrt(3)),
    ],
)
def test_no_two_ballots_are_further_apart_than_the_sensitivity_and_two_are_as_far(rule, known):
    ballots = every_ballot(rule).double()
    farthest = float(torch.cdist(ballots, ballots).max())
    assert farthest == pytest.approx(known)
    assert rule.sensitivity(1) == pytest.approx(known)
    assert rule.sensitivity(9) == pytest.approx(3 * known)


@pytest.mark.parametrize("rule", [VoteBounds(5, 1, 0, 1), VoteBounds(5, 2, 0, 3)])
def test_sparse_ballots_of_one_sign_are_farthest_on_different_places(rule):
    ballots = every_ballot(rule).double()
    assert float(torch.cdist(ballots, ballots).max()) == pytest.approx(rule.sensitivity(1))


def test_through_a_sketch_no_two_ballots_are_further_apart_than_promised():
    rule, sketch = VoteBounds(6, 2), CountSketch(6, 3, 3, "small")
    tables = sketch.table(every_ballot(rule).double()).flatten(1)
    farthest = float(torch.cdist(tables, tables).max())
    assert 0.5 * rule.sensitivity(1, sketch) < farthest <= rule.sensitivity(1, sketch) + 1e-9


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_whatever_a_teacher_votes_it_moves_the_count_by_no_more(seed):
    """Ballots that break the rule, in any way, count as none."""
    generator = torch.Generator().manual_seed(seed)
    honest = torch.randint(-1, 2, (6, 4, 10), generator=generator, dtype=torch.int8)
    wild = torch.randint(-128, 128, (4, 10), generator=generator, dtype=torch.int8)
    sparse = torch.zeros(4, 10, dtype=torch.int8)
    sparse[:, :3] = torch.randint(-2, 3, (4, 3), generator=generator)
    sums = []
    for own in (wild, sparse, torch.zeros(4, 10, dtype=torch.int8), honest[0] * 0 + 1):
        honest[2] = own
        sums.append(VoteCounts.count(SIGNS, 4, [honest[:2], honest[2:]]).sums.double())
    for a, b in itertools.combinations(sums, 2):
        assert float((a - b).norm()) <= SIGNS.sensitivity(4) + 1e-9


def test_the_count_is_the_sum_of_valid_ballots_however_they_are_stacked():
    ballots = torch.zeros(3, 1, 10, dtype=torch.int8)
    ballots[0, 0, :3] = torch.tensor([1, -1, 1])
    ballots[1, 0, :4] = 1  # one vote too many
    ballots[2, 0, 0] = 1
    wanted = torch.tensor([[2, -1, 1, 0, 0, 0, 0, 0, 0, 0]], dtype=torch.int32)
    whole = VoteCounts.count(SIGNS, 1, [ballots])
    parts = [VoteCounts.count(SIGNS, 1, [part]) for part in ballots.split(1)]
    assert torch.equal(whole.sums, wanted)
    assert torch.equal(VoteCounts.total(parts).sums, wanted)


def test_a_few_hundred_teachers_of_one_mind_do_not_overflow():
    ballots = torch.zeros(300, 1, 10, dtype=torch.int8)
    ballots[:, :, :3] = 1
    assert int(VoteCounts.count(SIGNS, 1, [ballots]).sums[0, 0]) == 300


def test_ballots_of_another_form_or_under_other_bounds_are_refused():
    with pytest.raises(ValueError, match="not"):
        VoteCounts.count(SIGNS, 4, [torch.zeros(2, 4, 9, dtype=torch.int8)])
    with pytest.raises(ValueError, match="not"):
        VoteCounts.count(SIGNS, 4, [torch.zeros(2, 4, 10)])
    other = VoteCounts(VoteBounds(10, 4), torch.zeros(1, 10, dtype=torch.int32))
    with pytest.raises(ValueError, match="different bounds"):
        VoteCounts.total([VoteCounts(SIGNS, other.sums), other])
    with pytest.raises(ValueError, match="bounded"):
        VoteBounds(10, 11).sensitivity(1)


def test_the_noise_is_as_large_as_said_and_paid_for(tmp_path):
    sums = torch.arange(20_000, dtype=torch.int32).view(2, -1) % 7
    tally = Sealed(VoteCounts(VoteBounds(10_000, 3), sums))
    (found,) = guard(tmp_path).apply(
        VoteSums(bounds=VoteBounds(10_000, 3), images=2, noise_multiplier=2.0), tally
    )
    rest = found - sums
    assert float(rest.std()) == pytest.approx(2.0 * 2 * math.sqrt(3 * 2), rel=0.03)
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert entry.event == to_json(gaussian(2.0))
    assert entry.view == "server"


def test_through_a_sketch_the_table_is_noised(tmp_path):
    sketch, sums = CountSketch(10, 40, 500, "k"), torch.ones(1, 10, dtype=torch.int32)
    mechanism = VoteSums(bounds=SIGNS, images=1, noise_multiplier=2.0, sketch=sketch)
    (found,) = guard(tmp_path).apply(mechanism, Sealed(VoteCounts(SIGNS, sums)))
    rest = found - sketch.table(sums.float())
    assert found.shape == (1, 40, 500)
    assert float(rest.std()) == pytest.approx(2.0 * SIGNS.sensitivity(1, sketch), rel=0.03)


def test_at_the_aggregate_the_plain_sums_leave_for_the_public_view_only(tmp_path):
    sums = torch.ones(2, 10, dtype=torch.int32)
    (found,) = guard(tmp_path).apply(
        VoteSums(bounds=SIGNS, images=2, noise_multiplier=2.0),
        Sealed(VoteCounts(SIGNS, sums)),
        noise_at=NoisePlacement.AGGREGATE,
    )
    grid = FixedPointGrid.of(SIGNS.sensitivity(2), found.numel())
    torch.testing.assert_close(grid.read(found), sums.float(), atol=grid.step, rtol=0)
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert entry.view == PUBLIC_VIEW.text


def test_beyond_the_budget_nothing_is_counted_out(tmp_path):
    tally = Sealed(VoteCounts(SIGNS, torch.ones(2, 10, dtype=torch.int32)))
    with pytest.raises(BudgetExceeded):
        guard(tmp_path, budget=Budget(0.1, 1e-5)).apply(
            VoteSums(bounds=SIGNS, images=2, noise_multiplier=2.0), tally
        )
    assert not read_entries(tmp_path / "ledger.jsonl")


@pytest.mark.parametrize(
    "counts",
    [
        VoteCounts(SIGNS, torch.ones(1, 10, dtype=torch.int32)),
        VoteCounts(SIGNS, torch.ones(2, 9, dtype=torch.int32)),
        VoteCounts(SIGNS, torch.ones(2, 10)),
        VoteCounts(VoteBounds(10, 2), torch.ones(2, 10, dtype=torch.int32)),
    ],
)
@pytest.mark.parametrize("kind", [VoteSums, VoteMaxima])
def test_counts_of_another_form_than_declared_are_refused(tmp_path, counts, kind):
    """The sensitivity is that of the declared images and bounds, never that of what was counted."""
    more = {"groups": 2} if kind is VoteMaxima else {}
    mechanism = kind(bounds=SIGNS, images=2, noise_multiplier=1.0, **more)
    with pytest.raises(ValueError, match="counted ballots are"):
        guard(tmp_path).apply(mechanism, Sealed(counts))


GROUPS, BINS, IMAGES = 3, 4, 5


MAXIMA_RULE = VoteBounds(GROUPS * BINS, GROUPS, 0, 1)


def maxima(path: Path, votes: torch.Tensor, noise: float = 1e-9, call: int = 0) -> torch.Tensor:
    """For votes [teachers, images, groups], each the number of a bin."""
    one_hot = torch.nn.functional.one_hot(votes, BINS).to(torch.int8).flatten(2)
    tally = VoteCounts.count(MAXIMA_RULE, IMAGES, [one_hot])
    mechanism = VoteMaxima(bounds=MAXIMA_RULE, images=IMAGES, groups=GROUPS, noise_multiplier=noise)
    (found,) = guard(path).apply(mechanism, Sealed(tally), call=call)
    return found


def drawn(teachers: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, BINS, (teachers, IMAGES, GROUPS), generator=generator)


@given(st.integers(1, 9), st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_maxima_are_those_of_a_naive_count_and_a_teacher_moves_each_by_one(
    tmp_path_factory, teachers, seed
):
    votes, path = drawn(teachers, seed), tmp_path_factory.mktemp("m")
    found = maxima(path, votes)
    for image in range(IMAGES):
        for group in range(GROUPS):
            cast = votes[:, image, group].tolist()
            naive = max(cast.count(each) for each in range(BINS))
            assert found[image, group].item() == pytest.approx(naive, abs=1e-4)
    votes[0] = drawn(1, seed + 1)[0]
    moved = (maxima(path, votes) - found).norm().item()
    assert moved <= math.sqrt(IMAGES * GROUPS) + 1e-3


def test_noise_and_charge_of_maxima(tmp_path):
    votes = drawn(4, 0)
    exact = maxima(tmp_path / "exact", votes)
    noise = torch.stack([maxima(tmp_path, votes, 2.0, call) - exact for call in range(200)])
    assert noise.std().item() == pytest.approx(2.0 * math.sqrt(IMAGES * GROUPS), rel=0.05)
    assert from_json(read_entries(tmp_path / "ledger.jsonl")[0].event) == gaussian(2.0)


SAME = {"bounds": SIGNS, "images": 2, "noise_multiplier": 2.0}


def test_a_user_is_bounded_only_where_the_party_is_one_teacher(tmp_path):
    counts = VoteCounts(SIGNS, torch.full((2, 10), 2, dtype=torch.int32))  # no ballot of signs
    for several in (VoteSums(**SAME), VoteSums(**SAME, teachers=7)):
        with pytest.raises(UserError, match="unit=user: votes bound what one teacher changes"):
            several.event(Unit.USER)
    with pytest.raises(UserError, match="unit=user: VoteMaxima bounds what one record changes"):
        VoteMaxima(**SAME, groups=2).event(Unit.USER)
    alone = VoteSums(**SAME, teachers=1)
    assert alone.event(Unit.USER) == alone.event(Unit.RECORD) == gaussian(2.0)
    before = alone.evaluate(counts, None, torch.device("cpu"))
    assert not before.values[0].any()


# Records assigned by class and rank


DEALT = {**SAME, "assignment": Assignment.STRATIFIED}


def dealt_counts() -> Sealed[VoteCounts]:
    sums = torch.ones(2, 10, dtype=torch.int32)
    return Sealed(VoteCounts(SIGNS, sums, Assignment.STRATIFIED))


def test_votes_of_teachers_dealt_by_class_are_charged_for_an_exchange_only(tmp_path):
    """Noise of two sensitivities is mu = 1/2 for an exchange, which by hash would be mu = 1."""
    price = gdp_epsilon(0.5, 1e-5)
    enough = Budget(price * 1.001, 1e-5, relation=Relation.REPLACE_ONE)
    (found,) = guard(tmp_path, budget=enough).apply(VoteSums(**DEALT), dealt_counts())
    assert found.shape == (2, 10)
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert from_json(entry.event) == gaussian_of_exchange(2.0)
    assert epsilon(from_json(entry.event), 1e-5, relation="replace_one") == pytest.approx(price)
    hashed = VoteCounts(SIGNS, torch.ones(2, 10, dtype=torch.int32))
    with pytest.raises(BudgetExceeded):
        guard(tmp_path / "hashed", budget=enough).apply(VoteSums(**SAME), Sealed(hashed))


def test_no_budget_under_add_remove_pays_for_teachers_dealt_by_class(tmp_path):
    with pytest.raises(BudgetExceeded):
        guard(tmp_path, budget=Budget(1e9, 1e-5)).apply(VoteSums(**DEALT), dealt_counts())
    assert not read_entries(tmp_path / "ledger.jsonl")


def test_votes_cannot_be_charged_as_if_records_were_assigned_otherwise(tmp_path):
    with pytest.raises(ValueError, match="not assigned to teachers as hashed"):
        guard(tmp_path).apply(VoteSums(**SAME), dealt_counts())
    hashed = VoteCounts(SIGNS, torch.ones(2, 10, dtype=torch.int32))
    with pytest.raises(ValueError, match="not assigned to teachers as stratified"):
        guard(tmp_path).apply(VoteSums(**DEALT), Sealed(hashed), call=1)
    with pytest.raises(ValueError, match="or assignments"):
        VoteCounts.total([hashed, VoteCounts(SIGNS, hashed.sums, Assignment.STRATIFIED)])


def test_a_user_is_not_bounded_where_records_are_dealt_by_class():
    with pytest.raises(UserError, match="unit=user: records that are assigned"):
        VoteSums(**DEALT, teachers=1).event(Unit.USER)
