"""Distributed noise: each party adds a share of the noise, and only the sum is revealed.

Every party places its clipped sum on a common grid (a whole multiple of `FixedPointGrid.step`,
rounded to the nearest), adds Gaussian noise of variance (sigma bound)^2 / shares, itself rounded
to the grid, and sends whole numbers. These add up exactly, in any order and modulo 2^64, which is
what secure aggregation can add.

Claim: one record changes one party's sum by at most `bound` in L2, and the sum on the grid by at
most bound + step sqrt(n), for n numbers (each coordinate is rounded twice, by at most half a step).
Noise is scaled to that larger bound, at most bound (1 + 1 / FINENESS). Let y be the sum of the
placed values, G the sum of the unrounded noise of `shares` parties, N that of their rounded noise.
The event is that of the Gaussian y + G, because y + N is a randomised function of it up to an error
that no float can hold: given G, the rounding errors G - N are distributed as uniform ones that add
up to G modulo one step, which is (y + G) modulo one step; by Poisson summation their densities
differ by a factor within 1 +- 4 K exp(-2 pi^2 t^2 / K), for K parties of noise t steps each.
`add_share` refuses t^2 < `SMOOTH` shares, so that the factor is within 1 +- 1e-800 for up to 1,000
parties a share. Noise of parties beyond `shares` is more noise. The normals themselves are those of
`privacy.noise`; rounding takes away their least bits.

Views: the server and the public receive sums of at least `shares` releases, with the full noise. A
server that colludes with c of the parties subtracts their noise: sqrt((shares - c) / shares) of the
noise multiplier remains (`weakened`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from dp_accounting import DpEvent

from fedsynth.core.errors import UserError
from fedsynth.privacy.accounting.events import from_json, to_json
from fedsynth.privacy.grid import FixedPointGrid, add_noise, place_all
from fedsynth.privacy.noise import NoiseStream

SMOOTH = 1e5


def add_share(
    values: Sequence[torch.Tensor],
    *,
    sensitivity: float,
    noise_multiplier: float,
    shares: int,
    stream: NoiseStream,
) -> list[torch.Tensor]:
    """`values` on their grid, plus one of `shares` shares of their Gaussian noise, int64.

    Raises:
        UserError: The noise of one share is too little for the grid.
    """
    grid = FixedPointGrid.of(sensitivity, sum(value.numel() for value in values))
    deviation = noise_multiplier * grid.bound / math.sqrt(shares) / grid.step
    if deviation**2 < SMOOTH * shares:
        raise UserError(
            f"noise of multiplier {noise_multiplier:g} in {shares} shares is too little for the "
            "grid it is added on; use fewer parties or more noise"
        )
    placed = place_all(values, grid)
    return add_noise(placed, grid, noise_multiplier=noise_multiplier, shares=shares, stream=stream)


def weakened(event: DpEvent, shares: int, colluding: int) -> DpEvent:
    """`event` towards a server that holds the noise of `colluding` parties other than the one under
    attack, whose own share always remains."""
    left = max(1, shares - colluding) / shares
    return from_json(_scaled(to_json(event), math.sqrt(left)))


def _scaled(event: dict[str, Any], factor: float) -> dict[str, Any]:
    match event:
        case {"sigma": sigma}:
            return {**event, "sigma": sigma * factor}
        case {"event": inner}:
            return {**event, "event": _scaled(inner, factor)}
        case {"events": parts}:
            return {**event, "events": [_scaled(part, factor) for part in parts]}
    raise ValueError(f"there are no shares of the noise of {event['type']!r}")
