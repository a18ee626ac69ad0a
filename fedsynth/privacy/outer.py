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
    lengths = row_norms(right)
    norms = row_norms(left) * lengths
    good = torch.isfinite(norms) & (lengths > 0)
    if not bool(good.all()):
        left, right, norms, lengths = left[good], right[good], norms[good], lengths[good]
    # The right side becomes directions and the left takes the lengths, both in float64: neither a
    # huge nor a tiny factor can lose digits on the way back to float32.
    factors = (bound * _SAFETY / norms).clamp(max=1.0) * lengths
    sides = left.double() * factors[:, None], right.double() / lengths[:, None]
    return sides[0].to(left.dtype).T @ sides[1].to(right.dtype)
