"""Low-frequency coefficients of images: a fixed orthonormal map and its transpose."""

from __future__ import annotations

from functools import lru_cache

import torch


@lru_cache(maxsize=32)
def dct_matrix(side: int, frequencies: int) -> torch.Tensor:
    """The first `frequencies` rows of the orthonormal DCT-II of length `side`, in float64.

    >>> rows = dct_matrix(28, 5)
    >>> bool(torch.allclose(rows @ rows.T, torch.eye(5, dtype=rows.dtype)))
    True
    """
    place = torch.arange(side, dtype=torch.float64)
    frequency = torch.arange(frequencies, dtype=torch.float64)[:, None]
    rows = torch.cos(torch.pi / side * (place + 0.5) * frequency) * (2 / side) ** 0.5
    rows[0] /= 2**0.5
    return rows


def coefficients(images: torch.Tensor, frequencies: int) -> torch.Tensor:
    """The lowest `frequencies` x `frequencies` DCT coefficients of square images [n, 1, s, s] as
    rows [n, frequencies^2]. No row is longer than its image, as the map is orthonormal."""
    rows = dct_matrix(images.shape[-1], frequencies).to(images)
    return (rows @ images[:, 0] @ rows.T).flatten(1)


def images_of(coefficients: torch.Tensor, side: int) -> torch.Tensor:
    """Images [n, 1, side, side] with these low-frequency coefficients and no others."""
    frequencies = round(coefficients.shape[1] ** 0.5)
    rows = dct_matrix(side, frequencies).to(coefficients)
    square = coefficients.view(-1, frequencies, frequencies)
    return (rows.T @ square @ rows)[:, None]


def below_the_diagonal(frequencies: int) -> torch.Tensor:
    """Places in the rows of `coefficients` whose two frequencies add up to less than `frequencies`:
    half the block, and nearly all of what smooth shapes have in it.

    >>> below_the_diagonal(3).tolist()
    [0, 1, 2, 3, 4, 6]
    """
    one = torch.arange(frequencies)
    return torch.nonzero((one[:, None] + one < frequencies).flatten()).flatten()
