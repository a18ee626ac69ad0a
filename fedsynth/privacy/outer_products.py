"""Clipped sums of outer products: per-record gradients of a linear layer, never written out."""

from __future__ import annotations

import torch

from fedsynth.privacy.clipping import row_norms

_SAFETY = 1 - 2.0**-18  # more than rounding can add to a norm
_ORDINARY = 2.0**20  # rows of such lengths need no care
_ROWS_AT_ONCE = 256  # so that they stay in a core's cache


def clipped_outer_sum(left: torch.Tensor, right: torch.Tensor, bound: float) -> torch.Tensor:
    """The sum over i of the matrices left_i (outer) right_i, [a, b], each clipped to `bound`.

    The L2 norm of such a matrix is the product of the two lengths. Adding or removing one pair of
    rows changes the sum by at most `bound`, up to the rounding of the sum itself. A pair whose norm
    is not finite contributes nothing.
    """
    total = left.new_zeros(left.shape[1], right.shape[1])
    for a, b in zip(left.split(_ROWS_AT_ONCE), right.split(_ROWS_AT_ONCE), strict=True):
        total += _sum_of_some(a, b, bound)
    return total


def _sum_of_some(left: torch.Tensor, right: torch.Tensor, bound: float) -> torch.Tensor:
    lengths = row_norms(right)
    norms = row_norms(left) * lengths
    good = torch.isfinite(norms) & (lengths > 0)
    if not bool(good.all()):
        left, right, norms, lengths = left[good], right[good], norms[good], lengths[good]
    factors = (bound * _SAFETY / norms).clamp(max=1.0)
    if bool(((lengths > 1 / _ORDINARY) & (lengths < _ORDINARY)).all()):
        return (left.double() * factors[:, None]).to(left.dtype).T @ right
    # The right side becomes directions and the left takes the lengths, both in float64: neither a
    # huge nor a tiny factor can lose digits on the way back to float32.
    sides = left.double() * (factors * lengths)[:, None], right.double() / lengths[:, None]
    return sides[0].to(left.dtype).T @ sides[1].to(right.dtype)
