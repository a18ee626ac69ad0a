"""Sums per class and over all records against naive ones, and their bounds."""

from __future__ import annotations

import pytest
import torch
from guarded import guard, private, records
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.enums import NoisePlacement
from fedsynth.core.plan import PUBLIC_VIEW
from fedsynth.data.records import Records
from fedsynth.privacy.accounting.events import gaussian, poisson, to_json
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.ledger import read_entries
from fedsynth.privacy.mechanisms.sums import ClassSums, RecordSum


@given(
    st.integers(0, 10_000),
    st.sampled_from([1.0, 1e3, 1e-3, float("inf"), float("nan")]),
)
@settings(max_examples=20, deadline=None)
def test_one_record_moves_one_class_sum_by_at_most_the_bound(tmp_path_factory, seed, stretch):
    """Whatever the method's own contribution computes, be it infinite."""
    path = tmp_path_factory.mktemp("guard")
    data = records(8, seed)
    fewer = Records(data.images[:-1], data.labels[:-1])

    def sums(some: Records) -> torch.Tensor:
        mechanism = ClassSums(
            contribution=lambda pixels, _: pixels.flatten(1) * stretch,
            width=64,
            clip=0.7,
            noise_multiplier=1.0,
            sampling_rates=dict.fromkeys(range(4), 1.0),
        )
        (total,) = guard(path).apply(mechanism, private(some, path))
        return total

    moved = (sums(data) - sums(fewer)).norm(dim=1)
    assert int((moved > 1e-5).sum()) <= 1
    assert moved.max().item() <= 0.7 * (1 + 1e-4) + 1e-5


def test_class_sums_are_the_naive_ones_and_cost_the_largest_rate(tmp_path):
    data = records(8)
    rates = {0: 1.0, 3: 1.0, 2: 1.0}
    mechanism = ClassSums(
        contribution=lambda pixels, _: pixels.flatten(1),
        width=64,
        clip=100.0,
        noise_multiplier=1e-9,
        sampling_rates=rates,
    )
    (sums,) = guard(tmp_path).apply(mechanism, private(data, tmp_path))
    for row, name in enumerate(rates):
        expected = data.pixels()[data.labels == name].flatten(1).sum(0)
        torch.testing.assert_close(sums[row], expected, rtol=1e-5, atol=1e-5)
    (entry,) = read_entries(tmp_path / "ledger.jsonl")
    assert entry.event == to_json(poisson(1.0, gaussian(1e-9)))


def test_a_contribution_is_told_the_class_of_every_record(tmp_path):
    data = records(8)
    mechanism = ClassSums(
        contribution=lambda pixels, names: pixels.flatten(1) * names[:, None],
        width=64,
        clip=100.0,
        noise_multiplier=1e-9,
        sampling_rates={3: 1.0, 1: 1.0},
    )
    (sums,) = guard(tmp_path).apply(mechanism, private(data, tmp_path))
    for row, name in enumerate((3, 1)):
        expected = name * data.pixels()[data.labels == name].flatten(1).sum(0)
        torch.testing.assert_close(sums[row], expected, rtol=1e-5, atol=1e-5)


def test_one_sum_over_all_classes_is_the_naive_one_and_no_record_moves_it_further(tmp_path):
    data = records(9)
    fewer = Records(data.images[1:], data.labels[1:])

    def total(some: Records, bound: float, noise: float) -> torch.Tensor:
        mechanism = RecordSum(
            contribution=lambda pixels, names: pixels.flatten(1) * names[:, None],
            width=64,
            clip=bound,
            noise_multiplier=noise,
            sampling_rate=1.0,
        )
        (total,) = guard(tmp_path / str(bound)).apply(mechanism, private(some, tmp_path))
        return total

    expected = (data.pixels().flatten(1) * data.labels[:, None]).sum(0)
    torch.testing.assert_close(total(data, 1e3, 1e-9), expected, rtol=1e-5, atol=1e-4)
    assert (total(data, 0.3, 1.0) - total(fewer, 0.3, 1.0)).norm().item() <= 0.3 * (1 + 1e-4)
    (entry,) = read_entries(tmp_path / "0.3" / "ledger.jsonl")
    assert entry.event == to_json(poisson(1.0, gaussian(1.0)))


def test_a_record_cannot_give_two_rows(tmp_path):
    """Two rows of one record, each within the bound, would together move the sum by twice it."""
    mechanism = ClassSums(
        contribution=lambda pixels, _: pixels.flatten(1).repeat(2, 1),
        width=64,
        clip=1.0,
        noise_multiplier=1.0,
        sampling_rates={0: 1.0},
    )
    with pytest.raises(ValueError, match="as many rows"):
        guard(tmp_path).apply(mechanism, private(records(8), tmp_path))


def test_a_class_without_records_releases_noise_like_any_other(tmp_path):
    mechanism = ClassSums(
        contribution=lambda pixels, _: pixels.flatten(1),
        width=64,
        clip=1.0,
        noise_multiplier=1.0,
        sampling_rates={0: 0.5, 1: 0.5},
    )
    (sums,) = guard(tmp_path).apply(mechanism, private(records(0), tmp_path))
    assert (sums != 0).all()


def test_class_sums_at_a_trusted_aggregator_carry_no_noise_and_are_charged_to_the_public(tmp_path):
    data = records(6)
    mechanism = ClassSums(
        contribution=lambda pixels, _: pixels.flatten(1),
        width=64,
        clip=100.0,
        noise_multiplier=50.0,
        sampling_rates={1: 1.0},
    )
    (sums,) = guard(tmp_path).apply(
        mechanism, private(data, tmp_path), noise_at=NoisePlacement.AGGREGATE
    )
    expected = data.pixels()[data.labels == 1].flatten(1).sum(0)
    read = FixedPointGrid.of(100.0, sums.numel()).read(sums)
    torch.testing.assert_close(read[0], expected, rtol=1e-4, atol=1e-3)
    assert read_entries(tmp_path / "ledger.jsonl")[0].view == PUBLIC_VIEW.text
