"""Counts of cells and distances from independence: against naive counts, and their bounds."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from guarded import guard, private
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.device import CPU
from fedsynth.core.enums import Unit
from fedsynth.core.errors import UserError
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import gaussian, to_json
from fedsynth.privacy.ledger import read_entries
from fedsynth.privacy.mechanisms.marginals import MarginalCounts, PairDistances
from fedsynth.privacy.noise import NoiseKey

SIZES = (3, 4, 2)
TABLES = ((0,), (0, 1), (2, 1), (0, 1, 2))
DEVICE = torch.device(CPU)
NOTHING = 1e-9  # a noise multiplier


def table(n: int, seed: int = 0) -> Records:
    """Records of three columns whose values are the codes over ten."""
    generator = torch.Generator().manual_seed(seed)
    columns = [torch.randint(0, size, (n,), generator=generator) for size in SIZES]
    return Records(torch.stack(columns, 1)[:, :, None, None].float() / 10, torch.zeros(n).long())


def codes(pixels: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return pixels.flatten(1).mul(10).round().long()


def counts(**changes) -> MarginalCounts:
    facts = {"codes": codes, "sizes": SIZES, "tables": TABLES, "noise_multiplier": NOTHING}
    return MarginalCounts(**{**facts, **changes})


def expected_counts(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    cells = [math.prod(SIZES[c] for c in columns) for columns in TABLES]
    return [torch.randint(0, 9, (size,), generator=generator) for size in cells]


def distances(**changes) -> PairDistances:
    facts = {"codes": codes, "sizes": SIZES, "tables": TABLES, "noise_multiplier": NOTHING}
    return PairDistances(**{**facts, "expected": expected_counts(1), **changes})


def naive_counts(records: Records, columns: tuple[int, ...]) -> list[int]:
    rows = codes(records.images, records.labels).tolist()
    cells = itertools.product(*(range(SIZES[c]) for c in columns))
    return [sum(tuple(row[c] for c in columns) == cell for row in rows) for cell in cells]


def test_counts_are_the_naive_ones_and_cost_one_gaussian(tmp_path, monkeypatch):
    monkeypatch.setattr("fedsynth.privacy.mechanisms.marginals._CHUNK", 7)
    data = table(40)
    answers = guard(tmp_path).apply(counts(), private(data, tmp_path))
    for columns, answer in zip(TABLES, answers, strict=True):
        assert answer.round().tolist() == naive_counts(data, columns)
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert entry.event == to_json(gaussian(NOTHING))


def test_distances_are_the_naive_ones(tmp_path):
    data = table(40)
    (answer,) = guard(tmp_path).apply(distances(), private(data, tmp_path))
    for columns, expected, found in zip(TABLES, expected_counts(1), answer, strict=True):
        pairs = zip(naive_counts(data, columns), expected.tolist(), strict=True)
        assert round(float(found)) == sum(abs(a - b) for a, b in pairs)


def values(mechanism: MarginalCounts, records: Records) -> tuple[torch.Tensor, float]:
    """The values before noise in one row, and the sensitivity."""
    key = NoiseKey.from_seed(1, "party 0")
    bounded = mechanism.evaluate(records, key.stream, DEVICE)
    assert all(value.dtype == torch.int64 for value in bounded.values)
    return torch.cat([value.flatten() for value in bounded.values]).double(), bounded.sensitivity


@given(st.integers(0, 10_000), st.sampled_from([1.0, 1e9, -5.0, float("nan"), float("inf")]))
@settings(max_examples=30, deadline=None)
def test_a_record_moves_all_values_within_the_sensitivity_whatever_the_codes_say(seed, stretch):
    """Codes far outside of their columns are clamped; a number of records may be zero."""

    def wild(pixels: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return (pixels.flatten(1) * stretch * 10).nan_to_num(7.0, 1e15, -1e15).long()

    data = table(1 + seed % 12, seed)
    fewer = Records(data.images[:-1], data.labels[:-1])
    for mechanism in (counts(codes=wild), distances(codes=wild, expected=expected_counts(seed))):
        (more, bound), (less, _) = values(mechanism, data), values(mechanism, fewer)
        assert float((more - less).norm()) <= bound == math.sqrt(len(TABLES))
        assert float((more - less).norm()) == pytest.approx(bound)  # and no less: it is tight


def test_the_noise_has_the_deviation_of_the_sensitivity(tmp_path):
    many = tuple((0, 1) for _ in range(400))
    answers = guard(tmp_path).apply(
        counts(tables=many, noise_multiplier=2.0), private(table(0), tmp_path)
    )
    assert torch.cat(answers).std().item() == pytest.approx(2.0 * math.sqrt(400), rel=0.05)


@pytest.mark.parametrize(
    "changes",
    [
        {"codes": lambda pixels, _: pixels.flatten(1)},  # floats
        {"codes": lambda pixels, _: codes(pixels, _)[:, :2]},  # a column too few
        {"codes": lambda pixels, _: codes(pixels, _)[:1]},  # one row for all records
    ],
)
def test_codes_of_another_form_are_refused(tmp_path, changes):
    with pytest.raises(ValueError, match="as many rows of whole numbers"):
        guard(tmp_path).apply(counts(**changes), private(table(5), tmp_path))


def test_expected_counts_of_another_form_are_refused(tmp_path):
    for wrong in (expected_counts(1)[::-1], [e.double() for e in expected_counts(1)]):
        with pytest.raises(ValueError, match="as many expected counts"):
            values(distances(expected=wrong), table(5))


def test_a_user_is_not_protected():
    with pytest.raises(UserError, match="unit=user"):
        counts().event(Unit.USER)
