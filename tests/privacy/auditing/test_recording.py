"""The record of a run: likelihood ratios of its outputs are those of the mechanism."""

from __future__ import annotations

import math

import pytest
import torch

from fedsynth.privacy.auditing.recording import (
    Recording,
    Use,
    distance,
    fine_bits,
    log_likelihood_ratio,
)


def recording(before: list[float], after: list[float], deviation: float, q: float) -> Recording:
    made = Recording()
    made.uses = [Use(torch.tensor(before).double(), [torch.tensor(after).double()], deviation, q)]
    return made


@pytest.mark.parametrize("q", [1.0, 0.3])
def test_the_ratio_is_that_of_the_densities(q):
    after, deviation = [0.7, -1.2], 0.9
    zero = recording([0.1, 0.0], after, deviation, 1.0)
    one = recording([1.0, -0.5], after, deviation, q)

    def density(before: list[float]) -> float:
        squares = sum((a - b) ** 2 for a, b in zip(after, before, strict=True))
        return math.exp(-squares / (2 * deviation**2))

    mixed = (1 - q) * density([0.1, 0.0]) + q * density([1.0, -0.5])
    expected = math.log(mixed / density([0.1, 0.0]))
    assert log_likelihood_ratio(zero, one) == pytest.approx(expected)


def test_the_distance_counts_deviations_of_the_noise():
    zero, one = (recording([x, 0.0], [0.0, 0.0], 0.5, 1.0) for x in (0.0, 3.0))
    assert distance(zero, one) == pytest.approx(6.0)


def test_fine_bits_are_counted_where_the_canary_alone_makes_a_number():
    """Of values 1: what is below 1/4 and no multiple of 2^-24 is noise alone."""
    after = [2.0**-30, 0.125, 0.9 + 2.0**-30, 2.0**-30]
    zero = recording([0.0, 0.0, 0.0, 1.0], after, 1.0, 1.0)
    one = recording([1.0, 1.0, 1.0, 2.0], after, 1.0, 1.0)
    assert fine_bits(zero, one) == 1.0
