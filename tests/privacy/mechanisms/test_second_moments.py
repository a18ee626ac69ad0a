"""Second moments by groups: what they add up to, what one record may do, and what they cost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from guarded import guard, private
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.privacy.accounting.events import from_json, gaussian
from fedsynth.privacy.ledger import read_entries
from fedsynth.privacy.mechanisms.outer_products import SecondMoments
from fedsynth.privacy.party_data import Records


def answer(path: Path, rows: torch.Tensor, groups: torch.Tensor, **terms: object) -> torch.Tensor:
    n = len(rows)
    data = Records(torch.zeros(n, 1, 2, 2, dtype=torch.uint8), torch.zeros(n, dtype=torch.int64))
    home = private(data, path)
    terms = {"groups": 3, "clip": 1.0, "noise_multiplier": 1e-9, **terms}
    sealed = home.records.map(lambda _: (rows, groups))
    mechanism = SecondMoments(rows=sealed, **terms)  # type: ignore[arg-type]
    (moments,) = guard(path).apply(mechanism, home)
    return moments


def some(seed: int, stretch: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(9, 4, generator=generator) * stretch
    return rows, torch.randint(-1, 4, (9,), generator=generator)  # some are in no group


@given(st.integers(0, 1000), st.floats(0.01, 10), st.sampled_from([0.1, 1.0, 1e3]))
@settings(max_examples=20, deadline=None)
def test_every_group_is_the_sum_of_its_clipped_matrices(tmp_path_factory, seed, bound, stretch):
    rows, groups = some(seed, stretch)
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
    rows, groups = some(seed)
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
    rows, groups = some(0)
    with pytest.raises(ValueError, match="one row and one group a record"):
        answer(tmp_path, rows, groups[:-1])
