"""'Same' 5x5 convolutions of stride 2 as products of windows, forward and backward, channels last.

'Same' as in TensorFlow: one row and column of zeros before an image of even side, two behind.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

KERNEL = 5
TAPS = KERNEL * KERNEL


@lru_cache(maxsize=16)
def valid_taps(side: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[positions, taps]: 1 where the tap of a 'same' stride-2 convolution lies inside the image."""
    ones = torch.ones(1, side, side, 1, dtype=dtype, device=device)
    return windows(ones).view(-1, TAPS)


@lru_cache(maxsize=16)
def _phase_taps(device: torch.device) -> Tensor:
    """The tap (of 25; 25 for none) from output (y, x) of 3x3 to the pixel of phase (a, b) in the
    transposed convolution, [3, 3, 2, 2] flat."""
    along: list[list[int | None]] = [[3, 4], [1, 2], [None, 0]]  # window row, phase -> tap row
    taps = [
        TAPS if y is None or x is None else y * KERNEL + x
        for window_y in along
        for window_x in along
        for y in window_y
        for x in window_x
    ]
    return torch.tensor(taps, device=device)


def windows(images: Tensor) -> Tensor:
    """The windows [n, (side/2)^2, 25 c] of images [n, side, side, c]."""
    n, side, _, channels = images.shape
    padded = images.new_zeros(n, side + 3, side + 3, channels)
    padded[:, 1 : side + 1, 1 : side + 1] = images
    row = (side + 3) * channels
    view = padded.as_strided(
        (n, side // 2, side // 2, KERNEL, KERNEL * channels),
        ((side + 3) * row, 2 * row, 2 * channels, row, 1),
    )
    return view.reshape(n, (side // 2) ** 2, TAPS * channels)


def input_gradient(gradient: Tensor, weights: Tensor, teachers: int) -> Tensor:
    """The gradient [n, 2s, 2s, in] of a convolution's input from that of its output.

    `gradient` [n, s + 2, s + 2, out] has a border of zeros; `weights` [teachers, out, 25 in]. Each
    output pixel depends on a 5x5 patch; conversely each 2x2 block of the input collects from 3x3
    outputs, so one product with the rearranged weights suffices."""
    n, wide, _, out = gradient.shape
    side, into = wide - 2, weights.shape[-1] // TAPS
    taps = F.pad(weights.view(teachers, out, TAPS, into).transpose(1, 2), (0, 0, 0, 0, 0, 1))
    chosen = taps.index_select(1, _phase_taps(gradient.device)).view(teachers, 9, 4, out, into)
    product = chosen.transpose(2, 3).reshape(teachers, 9 * out, 4 * into)
    row = wide * out
    view = gradient.as_strided((n, side, side, 3, 3 * out), (wide * row, row, out, row, 1))
    around = view.reshape(teachers, -1, 9 * out)
    blocks = torch.bmm(around, product).view(n, side, side, 2, 2 * into)
    return blocks.transpose(2, 3).reshape(n, 2 * side, 2 * side, into)
