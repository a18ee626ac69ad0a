"""Clipped sums of outer products: per-record gradients of a linear layer, never written out."""

from __future__ import annotations

import torch

from fedsynth.privacy.clipping import row_norms

_SAFETY = 1 - 2.0**-18  # more than rounding can add to a norm


def clipped_outer_sum(left: torch.Tensor, right: torch.Tensor, bound: float) -> torch.Tensor:
    """The sum over i of the matrices left_i (outer) right_i, [a, b], each clipped to `bound`.

    The L2 norm of such a matrix is the product of the two lengths. Adding or removing one pair of
    rows changes the sum by at most `bound`, up to the rounding of the sum itself. A pair whose norm
    is not finite contributes nothing.
    """
    norms = row_norms(left) * row_norms(right)
    good = torch.isfinite(norms)
    if not bool(good.all()):
        left, right, norms = left[good], right[good], norms[good]
    factors = (bound * _SAFETY / norms).clamp(max=1.0).to(left.dtype)
    return (left * factors[:, None]).T @ right
