"""The cosine basis against its formula."""

from __future__ import annotations

import math

import torch

from fedsynth.nn.transforms.dct import dct, dct_matrix, inverse_dct

IMAGES = torch.rand(4, 1, 9, 9, generator=torch.Generator().manual_seed(0))


def test_coefficients_are_sums_of_cosines() -> None:
    found = dct(IMAGES, 3).view(4, 3, 3)
    for a in range(3):
        for b in range(3):
            scale = math.sqrt((1 if a else 0.5) * (1 if b else 0.5)) * 2 / 9
            waves = [
                [
                    scale
                    * math.cos(math.pi * a * (2 * i + 1) / 18)
                    * math.cos(math.pi * b * (2 * j + 1) / 18)
                    for j in range(9)
                ]
                for i in range(9)
            ]
            expected = (IMAGES[:, 0] * torch.tensor(waves)).sum((1, 2))
            torch.testing.assert_close(found[:, a, b], expected, rtol=1e-5, atol=1e-5)


def test_all_frequencies_are_the_image_and_fewer_a_projection() -> None:
    torch.testing.assert_close(inverse_dct(dct(IMAGES, 9), 9), IMAGES)
    low = inverse_dct(dct(IMAGES, 4), 9)
    torch.testing.assert_close(dct(low, 4), dct(IMAGES, 4))
    assert (low.flatten(1).norm(dim=1) < IMAGES.flatten(1).norm(dim=1)).all()


def test_the_basis_is_orthonormal() -> None:
    rows = dct_matrix(28, 28)
    torch.testing.assert_close(rows @ rows.T, torch.eye(28, dtype=rows.dtype))
