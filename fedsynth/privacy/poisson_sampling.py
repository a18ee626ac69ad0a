"""Poisson sampling: each record enters a step independently of all others.

Claim: a record enters with probability `sampling_rate`, up to 2^-64, whatever records there are
beside it, because its fate depends on one secret 64-bit word that belongs to its position alone.
Consequence: a mechanism on the sample has the event `poisson(sampling_rate, mechanism)`, as the
accountants assume. A shuffled or fixed-size batch would have another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

Words = Callable[[int], np.ndarray]
"""Draws independent values, uniform on 64 bits (`NoiseStream.words`)."""


def poisson_sample(words: Words, records: int, sampling_rate: float) -> torch.Tensor:
    """Draw the indices of a Poisson sample.

    Args:
        words: The secret randomness.
        records: The number of records.
        sampling_rate: The probability of each record; from 1 on, all enter and nothing is drawn.

    Returns:
        Ascending indices, int64.
    """
    if sampling_rate >= 1.0:
        return torch.arange(records)
    threshold = np.uint64(math.ldexp(sampling_rate, 64))
    return torch.from_numpy(np.flatnonzero(words(records) < threshold))
