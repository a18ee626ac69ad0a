"""Sums of outer products and second moments per group: naive sums, bounds, noise, charges."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from guarded import guard, private, records
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.plan import PUBLIC_VIEW
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import from_json, gaussian, to_json
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.ledger import read_entries
from fedsynth.privacy.mechanisms.outer_products import OuterProductSum, SecondMoments


def factors(data: Records, stretch: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of very different lengths, each from its own record."""
    pixels = data.pixels().flatten(1)
    left = torch.stack([pixels[:, 0] - 0.5, pixels[:, 1] * stretch, pixels[:, 2] ** 4], dim=1)
    return left, pixels[:, 5:12] * (data.labels[:, None] + 0.1)


def outer_sum(
    path: Path,
    data: Records,
    stretch: float = 1.0,
    clip: float = 0.3,
    noise_multiplier: float = 1.0,
    **changes,
) -> torch.Tensor:
    home = private(data, path)
    rows = home.records.map(lambda records: factors(records, stretch))
    mechanism = OuterProductSum(
        factors=rows, shape=(3, 7), clip=clip, noise_multiplier=noise_multiplier
    )
    (total,) = guard(path).apply(mechanism, home, **changes)
    return total


def test_an_outer_sum_is_the_naive_one_and_costs_one_gaussian(tmp_path):
    data = records(11)
    total = torch.zeros(3, 7, dtype=torch.float64)
    clipped = 0
    for left, right in zip(*factors(data), strict=True):
        matrix = torch.outer(left.double(), right.double())
        clipped += matrix.norm() > 0.3
        total += matrix * min(1.0, 0.3 / float(matrix.norm()))
    assert 0 < clipped < 11
    found = outer_sum(tmp_path, data, noise_multiplier=1e-9)
    torch.testing.assert_close(found.double(), total, rtol=1e-4, atol=1e-6)
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert entry.event == to_json(gaussian(1e-9))
    bare = outer_sum(
        tmp_path, data, noise_multiplier=5.0, noise_at=NoisePlacement.AGGREGATE, call=1
    )
    read = FixedPointGrid.of(0.3, bare.numel()).read(bare)
    torch.testing.assert_close(read, found, rtol=1e-4, atol=1e-6)
    assert read_entries(tmp_path / "ledger.jsonl")[-1].view == PUBLIC_VIEW.text


@given(
    st.integers(0, 10_000),
    st.sampled_from([1.0, 1e20, 1e-30, float("inf"), float("nan")]),
    st.floats(1e-3, 10.0),
)
@settings(max_examples=20, deadline=None)
def test_one_record_moves_an_outer_sum_by_at_most_the_bound(tmp_path_factory, seed, stretch, bound):
    path = tmp_path_factory.mktemp("guard")
    data = records(7, seed)
    fewer = Records(data.images[:-1], data.labels[:-1])
    both = [outer_sum(path, some, stretch, clip=bound) for some in (data, fewer)]
    assert (both[0] - both[1]).norm().item() <= bound * (1 + 1e-4) + 1e-5


def test_the_noise_of_an_outer_sum_has_the_promised_scale(tmp_path):
    home = private(records(0), tmp_path)
    rows = home.records.map(lambda _: (torch.zeros(0, 40), torch.zeros(0, 500)))
    mechanism = OuterProductSum(factors=rows, shape=(40, 500), clip=0.5, noise_multiplier=3.0)
    (noise,) = guard(tmp_path).apply(mechanism, home)
    assert noise.std().item() == pytest.approx(1.5, rel=0.03)


@pytest.mark.parametrize(("rows", "widths"), [
    (6, (2, 2)),  # two rows per record
    (2, (2, 2)),
    (3, (3, 2)),  # a form that depends on the records would show it
    (3, (2, 1)),
])  # fmt: skip
def test_factors_of_another_form_than_declared_are_refused(tmp_path, rows, widths):
    home = private(records(3), tmp_path)
    factors = home.records.map(lambda _: tuple(torch.ones(rows, width) for width in widths))
    with pytest.raises(ValueError, match="exactly one row of 2 numbers per record"):
        guard(tmp_path).apply(
            OuterProductSum(factors=factors, shape=(2, 2), clip=1.0, noise_multiplier=1.0), home
        )


def test_factors_of_other_records_are_refused(tmp_path):
    """As many rows as records, but of other records: removing one of these would not count."""
    home, other = (private(records(3, seed), tmp_path) for seed in (0, 1))
    factors = other.records.map(lambda _: (torch.ones(3, 2), torch.ones(3, 2)))
    with pytest.raises(ValueError, match="not computed from the same records"):
        guard(tmp_path).apply(
            OuterProductSum(factors=factors, shape=(2, 2), clip=1.0, noise_multiplier=1.0), home
        )


def answer(
    path: Path, rows: torch.Tensor, groups: torch.Tensor, call: int = 0, **terms: object
) -> torch.Tensor:
    n = len(rows)
    data = Records(torch.zeros(n, 1, 2, 2, dtype=torch.uint8), torch.zeros(n, dtype=torch.int64))
    home = private(data, path)
    terms = {"groups": 3, "width": rows.shape[1], "clip": 1.0, "noise_multiplier": 1e-9, **terms}
    sealed = home.records.map(lambda _: (rows, groups))
    mechanism = SecondMoments(rows=sealed, **terms)  # type: ignore[arg-type]
    (moments,) = guard(path).apply(mechanism, home, call=call)
    return moments


def random_rows(seed: int, stretch: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(9, 4, generator=generator) * stretch
    return rows, torch.randint(-1, 4, (9,), generator=generator)  # some are in no group


@given(st.integers(0, 1000), st.floats(0.01, 10), st.sampled_from([0.1, 1.0, 1e3]))
@settings(max_examples=20, deadline=None)
def test_every_group_is_the_sum_of_its_clipped_matrices(tmp_path_factory, seed, bound, stretch):
    rows, groups = random_rows(seed, stretch)
    found = answer(tmp_path_factory.mktemp("g"), rows, groups, clip=bound)
    assert found.shape == (3, 4, 4)
    expected = torch.zeros(3, 4, 4).double()
    for row, group in zip(rows.double(), groups.tolist(), strict=True):
        if 0 <= group < 3:
            matrix = torch.outer(row, row)
            expected[group] += matrix * min(1.0, bound / float(matrix.norm()))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5 * bound)


@given(st.integers(0, 1000), st.sampled_from([0.1, 1.0, 1e3, float("inf"), float("nan")]))
@settings(max_examples=30, deadline=None)
def test_one_record_moves_all_groups_together_by_at_most_the_bound(tmp_path_factory, seed, stretch):
    """The same secret, so the same noise on both sides: what is left is the record."""
    rows, groups = random_rows(seed)
    rows[-1] *= stretch
    terms = {"clip": 0.7, "noise_multiplier": 2.0}
    path = tmp_path_factory.mktemp("g")
    with_it = answer(path, rows, groups, **terms)
    without = answer(path, rows[:-1], groups[:-1], **terms)
    assert float((with_it - without).norm()) <= 0.7 * (1 + 1e-4) + 1e-5


def test_noise_is_there_for_empty_groups_with_the_promised_scale_and_is_paid_for(tmp_path):
    rows, groups = torch.zeros(2, 60), torch.tensor([-1, -1])
    noise = answer(tmp_path, rows, groups, clip=0.5, noise_multiplier=3.0)
    assert noise.std().item() == pytest.approx(1.5, rel=0.03)
    for one, other in ((0, 1), (1, 2)):
        alike = torch.corrcoef(torch.stack([noise[one].flatten(), noise[other].flatten()]))[0, 1]
        assert abs(float(alike)) < 0.06
    turned = torch.corrcoef(torch.stack([noise[0].flatten(), noise[0].T.flatten()]))[0, 1]
    assert float(turned) < 0.1  # not symmetric: sixty entries of the diagonal are their own
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert from_json(entry.event) == gaussian(3.0)


def test_rows_that_are_not_one_a_record_are_refused(tmp_path):
    rows, groups = random_rows(0)
    with pytest.raises(ValueError, match="one group number per record"):
        answer(tmp_path, rows, groups[:-1])
    with pytest.raises(ValueError, match="one row of 3 numbers per record"):
        answer(tmp_path, rows, groups, call=1, width=3)
