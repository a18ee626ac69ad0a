"""Clipped sums of outer products: per-record gradients of a linear layer, never written out."""

from __future__ import annotations

import torch

from fedsynth.privacy.clipping import row_norms

_SAFETY = 1 - 2.0**-18  # more than rounding can add to a norm
_MODERATE = 2.0**20  # lengths below it, and above its inverse, lose no digits
_CHUNK = 256  # so that they stay in a core's cache


def clipped_outer_sum(left: torch.Tensor, right: torch.Tensor, bound: float) -> torch.Tensor:
    """The sum over i of the matrices left_i (outer) right_i, [a, b], each clipped to `bound`.

    Claim: adding or removing one pair of rows changes the sum by at most `bound` in L2, up to the
    rounding of the sum itself. The norm of a matrix is the product of the two lengths; a pair whose
    norm is not finite contributes zero.
    """
    total = left.new_zeros(left.shape[1], right.shape[1])
    for a, b in zip(left.split(_CHUNK), right.split(_CHUNK), strict=True):
        total += _chunk_sum(a, b, bound)
    return total


def _chunk_sum(left: torch.Tensor, right: torch.Tensor, bound: float) -> torch.Tensor:
    lengths = row_norms(right)
    norms = row_norms(left) * lengths
    finite = torch.isfinite(norms) & (lengths > 0)
    if not bool(finite.all()):
        left, right, norms, lengths = left[finite], right[finite], norms[finite], lengths[finite]
    factors = (bound * _SAFETY / norms).clamp(max=1.0)
    if bool(((lengths > 1 / _MODERATE) & (lengths < _MODERATE)).all()):
        return (left.double() * factors[:, None]).to(left.dtype).T @ right
    # The right side becomes unit vectors and the left takes the lengths, both in float64, so that
    # neither a huge nor a tiny factor loses digits in the conversion to float32.
    sides = left.double() * (factors * lengths)[:, None], right.double() / lengths[:, None]
    return sides[0].to(left.dtype).T @ sides[1].to(right.dtype)
