"""Noise on a grid: its scale, its sensitivity, and an attacker who reads the least bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.privacy.grid import (
    FINENESS,
    LEAST,
    MAX_SCALE,
    MAX_STEPS,
    MOST,
    FixedPointGrid,
    add_noise,
    noised,
)
from fedsynth.privacy.noise import NoiseKey

KEY = NoiseKey.from_seed(11, "party 0")
bounds = st.floats(1e-3, 1e3)


@settings(max_examples=50, deadline=None)
@given(bounds, st.integers(1, 400), st.integers(0, 10**6), st.floats(0, 1))
def test_a_record_moves_what_is_placed_by_no_more_than_the_grid_says(bound, numbers, seed, share):
    """The worst case is a record whose every coordinate crosses the middle between two steps."""
    grid = FixedPointGrid.of(bound, numbers)
    assert math.log2(grid.step).is_integer()
    assert bound < grid.bound <= bound * (1 + 1 / FINENESS)
    rng = np.random.default_rng(seed)
    before = torch.from_numpy(rng.integers(-1000, 1000, numbers) + 0.5 - 1e-9) * grid.step
    move = torch.from_numpy(np.full(numbers, 1e-8) + share * rng.normal(size=numbers) * 1e9)
    move = move * grid.step
    move = move * min(1.0, bound / float(move.norm()))
    moved = (grid.place(before + move) - grid.place(before)).double() * grid.step
    assert float(moved.norm()) <= grid.bound * (1 + 1e-12)


def test_reading_gives_back_what_was_placed():
    values = torch.tensor([1.25, -3.5, 0.0, 1e-9, 7.7])
    grid = FixedPointGrid.of(1.0, 5)
    assert (grid.read(grid.place(values)) - values).abs().max() <= grid.step / 2


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_numbers_that_no_mechanism_makes_are_refused(wrong):
    with pytest.raises(ValueError, match="not finite"):
        FixedPointGrid(1.0, 1.0).place(torch.tensor([0.0, wrong], dtype=torch.float64))


def test_a_sum_beyond_the_range_is_placed_at_its_end_and_shows_nothing():
    """A refusal would tell a party with one record less, whose sum is within, from this one."""
    grid = FixedPointGrid(1.0, 1.0)
    sums = torch.tensor(
        [MAX_STEPS - 1, MAX_STEPS, 4 * MAX_STEPS, -4 * MAX_STEPS], dtype=torch.float64
    )
    assert grid.place(sums).tolist() == [int(x) for x in sums.clamp(-MAX_STEPS, MAX_STEPS)]


@pytest.mark.parametrize("sensitivity", [0.0, LEAST / 2, 2 * MOST, math.inf, math.nan])
def test_a_clip_at_which_float32_loses_digits_is_refused_by_name(sensitivity):
    with pytest.raises(UserError, match=r"clip .* out of range\. Allowed: 9e-13 to 1e\+12"):
        FixedPointGrid.of(sensitivity, 10)


def test_the_result_is_the_sum_plus_noise_of_the_stated_scale():
    values = [torch.full((100, 200), 0.25, dtype=torch.float64), torch.zeros(20_000)]
    first, second = noised(
        values, sensitivity=0.5, noise_multiplier=3.0, stream=KEY.stream("scale")
    )
    assert first.shape == (100, 200)
    assert first.dtype == torch.float32
    assert first.mean().item() == pytest.approx(0.25, abs=0.05)
    for result in (first, second):
        assert result.std().item() == pytest.approx(1.5, rel=0.03)


def test_every_result_lies_on_the_grid():
    values = torch.linspace(-3, 3, 500, dtype=torch.float64)
    (result,) = noised(
        [values], sensitivity=1.0, noise_multiplier=2.0**-6, stream=KEY.stream("lattice")
    )
    steps = result.double() / FixedPointGrid.of(1.0, 500, 2.0**-6).step
    assert torch.equal(steps, steps.round())


@pytest.mark.parametrize("noise_multiplier", [1e-3, 1.0, 1e4, 1e9])
def test_large_noise_makes_the_grid_coarser_but_not_the_sensitivity_much_larger(noise_multiplier):
    grid = FixedPointGrid.of(0.1, 10_000, noise_multiplier)
    assert noise_multiplier * grid.bound / grid.step <= 2 * MAX_SCALE
    coarsening = 2 * noise_multiplier * math.sqrt(10_000) / MAX_SCALE
    assert 0.1 < grid.bound <= 0.1 * (1 + max(1 / FINENESS, coarsening))


def test_without_a_multiplier_nothing_is_added():
    grid = FixedPointGrid.of(1.0, 3)
    placed = grid.place(torch.tensor([1.0, -2.0, 0.5]))
    (same,) = add_noise([placed], grid, noise_multiplier=0.0, stream=KEY.stream("none"))
    assert torch.equal(same, placed)


def float32_sum(values: torch.Tensor, deviation: float, stream: np.random.Generator) -> np.ndarray:
    """The former way: float32 noise added to a float32 sum."""
    noise = torch.from_numpy(stream.normal(size=len(values)) * deviation).float()
    return (values.float() + noise).numpy()


def fine_bits(numbers: np.ndarray) -> int:
    """The number of entries that have a bit below 2^-26, which a sum of noise and a larger number
    cannot have in float32."""
    scaled = np.abs(numbers.astype(np.float64)) * 2.0**26
    return int((scaled != np.rint(scaled)).sum())


def separated(releases: list[list[int]]) -> float:
    """The largest difference of the two worlds' chances to exceed some threshold."""
    without, with_record = (np.array(counts) for counts in releases)
    thresholds = np.unique(np.concatenate([without, with_record]))
    return max(abs((without > t).mean() - (with_record > t).mean()) for t in thresholds)


def test_the_least_bits_tell_a_record_apart_in_float32_and_not_on_the_grid():
    """One record puts .02 into 1,000 coordinates that are exactly zero without it (L2 norm .63).

    The noise hides it: at noise multiplier 4 no test separates the two worlds by more than
    2 Phi(mu / 2) - 1 with mu = 1/4. An attacker who counts least bits does so by far more in
    float32 arithmetic; on the grid the bound holds.
    """
    numbers, runs, mu = 1000, 1000, 0.25
    record = torch.full((numbers,), 0.02, dtype=torch.float64)
    sensitivity = float(record.norm())
    bound = math.erf(mu / 2 / math.sqrt(2))
    slack = 1.63 * math.sqrt(2 / runs)  # Kolmogorov-Smirnov at 1%
    rng = np.random.default_rng(3)
    old: list[list[int]] = [[], []]
    new: list[list[int]] = [[], []]
    for run in range(runs):
        for world, values in enumerate((torch.zeros_like(record), record)):
            old[world].append(fine_bits(float32_sum(values, sensitivity / mu, rng)))
            (release,) = noised(
                [values],
                sensitivity=sensitivity,
                noise_multiplier=1 / mu,
                stream=KEY.stream("world", world, run),
            )
            new[world].append(fine_bits(release.numpy()))
    assert separated(old) > bound + 3 * slack, "the attack has no power"
    assert separated(new) <= bound + slack
