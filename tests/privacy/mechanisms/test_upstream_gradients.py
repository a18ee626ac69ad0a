"""The sanitiser of upstream gradients against the naive one, and its promise of sensitivity."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from guarded import FREE, guard, private
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.plan import PartyPlan
from fedsynth.core.types import Budget
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import from_json, gaussian, gaussian_in_ball, one_part
from fedsynth.privacy.ledger import BudgetExceeded, read_entries
from fedsynth.privacy.mechanisms.upstream_gradients import UpstreamGradients
from fedsynth.privacy.subsets import Subset

SIX = Records(torch.zeros(6, 1, 2, 2, dtype=torch.uint8), torch.arange(6))
WHOLE = Subset("cut", 0, 1)


def answer(path: Path, rows: torch.Tensor, *, part=WHOLE, budget=FREE, **terms) -> torch.Tensor:
    terms = {"clip": 1.0, "noise_multiplier": 1.0, **terms}
    home = private(SIX, path)
    mechanism = UpstreamGradients(gradients=lambda _: rows, shape=rows.shape, subset=part, **terms)
    (sanitised,) = guard(path, budget=budget).apply(mechanism, home)
    return sanitised


def test_published_noise_and_clipping(tmp_path):
    """B=32, C=1, sigma=1.07: noise of 2 sigma C / B in each number of the mean; norm 10 to 1/B."""
    terms = {"noise_multiplier": 1.07 / math.sqrt(32)}
    noise = answer(tmp_path, torch.zeros(32, 784), **terms) / 32
    assert noise.std().item() == pytest.approx(0.066875, rel=0.02)
    long = torch.zeros(32, 784)
    long[:, 5] = 10.0
    clean = answer(tmp_path / "clean", long, noise_multiplier=1e-9) / 32
    assert clean.norm(dim=1).tolist() == pytest.approx([1 / 32] * 32, rel=1e-4)


@given(st.integers(0, 1000), st.floats(0.01, 10), st.sampled_from([1e-3, 1.0, 1e4, math.inf]))
@settings(max_examples=20, deadline=None)
def test_rows_are_clipped_one_by_one_and_never_move_further_than_promised(
    tmp_path_factory, seed, bound, stretch
):
    """The same secret, so the same noise: what differs is the critic, whatever it says."""
    generator = torch.Generator().manual_seed(seed)
    rows, other = (torch.randn((4, 3, 2), generator=generator) * stretch for _ in "ab")
    path, terms = tmp_path_factory.mktemp("g"), {"clip": bound, "noise_multiplier": 1e-9}
    found = answer(path, rows, **terms)
    for row, clipped in zip(rows, found, strict=True):
        factor = min(1.0, bound / float(row.norm())) if torch.isfinite(row).all() else 0.0
        expected = torch.nan_to_num(row, 0, 0, 0) * factor
        torch.testing.assert_close(clipped, expected, rtol=1e-4, atol=1e-6 * bound)
    moved = (answer(path, other, **terms) - found).norm().item()
    assert moved <= 2 * bound * math.sqrt(4) * (1 + 1e-4)


@pytest.mark.parametrize(("unit", "event"), [
    ("record", one_part("cut", 2, 5, gaussian_in_ball(7.0))), ("user", gaussian_in_ball(7.0)),
])  # fmt: skip
def test_a_record_is_charged_its_part_and_a_user_the_whole(tmp_path, unit, event):
    budget = Budget(float("inf"), 1e-5, unit=unit)
    answer(
        tmp_path, torch.ones(2, 4), part=Subset("cut", 2, 5), budget=budget, noise_multiplier=7.0
    )
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert from_json(entry.event) == event


def test_the_method_is_shown_the_records_of_the_part_alone(tmp_path):
    seen: list[Records] = []
    data = Records(torch.arange(40, dtype=torch.uint8).view(10, 1, 2, 2), torch.arange(10))
    home = private(data, tmp_path)
    for index in range(3):

        def look(mine: Records) -> torch.Tensor:
            seen.append(mine)
            return torch.zeros(1, 4)

        mechanism = UpstreamGradients(
            gradients=look,
            shape=(1, 4),
            subset=Subset("cut", index, 3),
            clip=1.0,
            noise_multiplier=1.0,
        )
        guard(tmp_path, digest=str(index)).apply(mechanism, home)
    labels = torch.cat([mine.labels for mine in seen])
    assert sorted(labels.tolist()) == list(range(10))
    assert max(len(mine.labels) for mine in seen) < 10


def test_beyond_the_budget_the_critic_is_not_even_asked(tmp_path):
    def never(_: Records) -> torch.Tensor:
        raise AssertionError("the records were looked at")

    poor = guard(tmp_path, budget=Budget(1.0, 1e-5))
    with pytest.raises(BudgetExceeded):
        poor.apply(
            UpstreamGradients(
                gradients=never, shape=(1, 4), subset=WHOLE, clip=1.0, noise_multiplier=1.0
            ),
            private(SIX, tmp_path),
        )


@pytest.mark.parametrize("rows", [0, 3, 5])
def test_a_number_of_rows_that_depends_on_records_is_refused(tmp_path, rows):
    """Fewer rows would get less noise and show how many there are."""
    mechanism = UpstreamGradients(
        gradients=lambda _: torch.zeros(rows, 2),
        shape=(4, 2),
        subset=WHOLE,
        clip=1.0,
        noise_multiplier=1.0,
    )
    with pytest.raises(ValueError, match=r"must have the shape \(4, 2\)"):
        guard(tmp_path).apply(mechanism, private(SIX, tmp_path))


def test_an_acknowledgement_holds_nothing(tmp_path):
    release = guard(tmp_path, plan=PartyPlan(4, 6, gaussian(1.0))).acknowledge()
    assert (release.party, release.arrays, release.scalars, release.entries) == (4, {}, {}, ())
    assert not (tmp_path / "ledger.jsonl").exists()
