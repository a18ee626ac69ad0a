"""Noise on a public grid: sums become whole numbers, and exact noise is added to whole numbers.

Claim. If neighbouring data sets move a vector of n numbers by at most `sensitivity` in L2, then
`noised` is a Gaussian mechanism with the stated noise multiplier, in every bit of its result:

* the vector is rounded to whole multiples of a step, a power of two; the rounded vectors of two
  neighbours differ by at most `bound` = sensitivity + step sqrt(n), and the noise is made for
  `bound`, which is within 2^-20 of the sensitivity;
* the noise is an exactly rounded Gaussian (`privacy.rounded_gaussian`), so the integer result is
  the rounded value of integer + Gaussian: post-processing of the Gaussian mechanism;
* integers are added exactly, and whatever is done afterwards (conversion to floats, bytes) is
  post-processing.

In float arithmetic none of this holds: noise + 0 has least bits that noise + m cannot have.

Assumption. The sensitivity covers the float errors of the sum before it is placed; each mechanism
states them (`privacy.mechanisms`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.core.device import CPU, moved
from fedsynth.core.errors import UserError
from fedsynth.privacy.noise import NoiseStream

FINENESS = 2.0**20
MAX_STEPS = 2.0**50  # of one party's numbers, so that thousands of parties add up within 64 bits
MAX_SCALE = 2.0**43  # of the noise, in steps
LEAST, MOST = 2.0**-40, 2.0**40  # sensitivity: float32 holds all clipped values between in full


@dataclass(frozen=True)
class FixedPointGrid:
    """Whole multiples of `step`; `bound` is the sensitivity of a vector that was rounded to them.

    All parties and the server compute the same grid from public numbers."""

    step: float
    bound: float

    @staticmethod
    def of(sensitivity: float, numbers: int, noise_multiplier: float = 1.0) -> FixedPointGrid:
        """The grid for `numbers` numbers with this sensitivity.

        The step is a power of two, so that placing and reading are exact. It is finer than the
        sensitivity by 2^20 sqrt(numbers), or coarser where the noise is so large that its integers
        would leave the range of the sampler.

        Raises:
            UserError: The sensitivity, a public number, is so small or large that values clipped to
                it would lose digits in float32, and with them their bound.
        """
        if not LEAST <= sensitivity <= MOST:
            raise UserError(
                f"a clip that bounds one record's part by {sensitivity:g} is out of range. "
                f"Allowed: {LEAST:.1g} to {MOST:.1g}."
            )
        fine = sensitivity / (FINENESS * math.sqrt(max(1, numbers)))
        needed = noise_multiplier * sensitivity / MAX_SCALE
        exponent = max(math.floor(math.log2(fine)), math.ceil(math.log2(max(needed, 1e-300))))
        step = 2.0**exponent
        return FixedPointGrid(step, sensitivity + step * math.sqrt(numbers))

    def place(self, values: Tensor) -> Tensor:
        """The nearest whole numbers of steps, int64, of a size that can be added up.

        Larger numbers become the largest. That moves no two vectors apart, where a refusal would
        show that there is such a number.

        Raises:
            ValueError: A number is not finite, which no mechanism's sum is, whatever the records.
        """
        steps = values.detach().cpu().double() / self.step
        if not torch.isfinite(steps).all():
            raise ValueError("a mechanism made a sum with numbers that are not finite")
        return steps.clamp(-MAX_STEPS, MAX_STEPS).round().long()

    def read(self, sums: Tensor) -> Tensor:
        """Whole numbers of steps as float32 numbers."""
        return (sums.double() * self.step).float()


def add_noise(
    placed: Sequence[Tensor],
    grid: FixedPointGrid,
    *,
    noise_multiplier: float,
    shares: int = 1,
    stream: NoiseStream,
) -> list[Tensor]:
    """Integers on the grid plus one of `shares` shares of exactly rounded Gaussian noise."""
    scale = noise_multiplier * grid.bound / grid.step / math.sqrt(shares)
    if scale == 0:
        return list(placed)
    noise = (torch.from_numpy(stream.rounded_gaussian(v.numel(), scale)) for v in placed)
    return [v + n.reshape(v.shape) for v, n in zip(placed, noise, strict=True)]


def place_all(values: Sequence[Tensor], grid: FixedPointGrid) -> list[Tensor]:
    """`FixedPointGrid.place` of each of the values; those on a GPU come over in one copy."""
    return [grid.place(value) for value in moved(values, torch.device(CPU))]


def noised(
    values: Sequence[Tensor],
    *,
    sensitivity: float,
    noise_multiplier: float,
    stream: NoiseStream,
) -> list[Tensor]:
    """`values` plus Gaussian noise of `noise_multiplier` times their sensitivity, as float32.

    Values of a GPU come over in one copy and go back in one: noise is whole numbers of 64 bits,
    which the CPU draws and adds."""
    numbers = sum(value.numel() for value in values)
    grid = FixedPointGrid.of(sensitivity, numbers, noise_multiplier)
    placed = place_all(values, grid)
    results = add_noise(placed, grid, noise_multiplier=noise_multiplier, stream=stream)
    device = values[0].device if values else torch.device(CPU)
    return moved([grid.read(result) for result in results], device)
