"""Clipped sums of outer products: per-record gradients of a linear layer, never written out."""

from __future__ import annotations

import torch

from fedsynth.privacy.clipping import row_norms

_SAFETY = 1 - 2.0**-18  # more than rounding can add to a norm
_CHUNK = 256  # so that they stay in a core's cache


def clipped_outer_sum(left: torch.Tensor, right: torch.Tensor, bound: float) -> torch.Tensor:
    """The sum over i of the matrices left_i (outer) right_i, [a, b], each clipped to `bound`.

    Claim: adding or removing one pair of rows changes the sum by at most `bound` in L2. Products
    and sums are float64: over a million pairs their rounding is below the margin (4e-6) by which
    each pair is clipped to less than `bound`. The norm of a matrix is the product of the two
    lengths; a pair whose norm is not finite contributes zero.
    """
    total = left.new_zeros((left.shape[1], right.shape[1]), dtype=torch.float64)
    for a, b in zip(left.split(_CHUNK), right.split(_CHUNK), strict=True):
        total += _chunk_sum(a, b, bound)
    return total


def _chunk_sum(left: torch.Tensor, right: torch.Tensor, bound: float) -> torch.Tensor:
    lengths = row_norms(right)
    norms = row_norms(left) * lengths
    finite = torch.isfinite(norms) & (lengths > 0)
    if finite.device.type != "cpu":  # which is asked nothing, so that nobody waits for it
        left, right = (torch.where(finite[:, None], side, 0.0) for side in (left, right))
        norms, lengths = (torch.where(finite, number, 1.0) for number in (norms, lengths))
    elif not bool(finite.all()):
        left, right, norms, lengths = left[finite], right[finite], norms[finite], lengths[finite]
    # The right side becomes unit vectors and the left takes the lengths, so that neither a huge nor
    # a tiny factor loses digits.
    factors = (bound * _SAFETY / norms).clamp(max=1.0)
    return (left.double() * (factors * lengths)[:, None]).T @ (right.double() / lengths[:, None])
