"""The discrete cosine transform at low frequencies: an orthonormal map and its transpose."""

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
    position = torch.arange(side, dtype=torch.float64)
    frequency = torch.arange(frequencies, dtype=torch.float64)[:, None]
    rows = torch.cos(torch.pi / side * (position + 0.5) * frequency) * (2 / side) ** 0.5
    rows[0] /= 2**0.5
    return rows


def dct(images: torch.Tensor, frequencies: int) -> torch.Tensor:
    """The lowest `frequencies` x `frequencies` DCT coefficients of square images [n, 1, s, s].

    Returns:
        Rows [n, frequencies^2]. As the map is orthonormal, no row has a larger L2 norm than its
        image.
    """
    rows = dct_matrix(images.shape[-1], frequencies).to(images)
    return (rows @ images[:, 0] @ rows.T).flatten(1)


def inverse_dct(coefficients: torch.Tensor, side: int) -> torch.Tensor:
    """The images [n, 1, side, side] with these low-frequency coefficients and all others zero."""
    frequencies = round(coefficients.shape[1] ** 0.5)
    rows = dct_matrix(side, frequencies).to(coefficients)
    square = coefficients.view(-1, frequencies, frequencies)
    return (rows.T @ square @ rows)[:, None]


def low_frequency_triangle(frequencies: int) -> torch.Tensor:
    """Indices into the rows of `dct` whose two frequencies add up to less than `frequencies`.

    They are about half of the block, and hold nearly all of the energy of smooth shapes.

    >>> low_frequency_triangle(3).tolist()
    [0, 1, 2, 3, 4, 6]
    """
    index = torch.arange(frequencies)
    return torch.nonzero((index[:, None] + index < frequencies).flatten()).flatten()
